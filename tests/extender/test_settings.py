"""Settings come from the environment, have sane defaults, and what cannot be is one sentence that names the variable."""

import pytest
from pydantic import ValidationError

from extender.settings import Policy, Settings, read_settings
from topology.errors import InputError


def test_defaults_are_what_the_design_says():
    settings = read_settings()
    assert settings.whole_gpu_resource == "nvidia.com/gpu"
    assert settings.policy is Policy.PACK
    assert (settings.tentative_hold_s, settings.bind_timeout_s, settings.bind_grace_s) == (2.0, 3.0, 2.0)
    assert settings.decisions_kept == 1000
    assert settings.gpu_reserve_mib == 0


def test_the_environment_sets_each_by_its_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LINKWISE_WHOLE_GPU_RESOURCE", "example.com/gpu")
    monkeypatch.setenv("LINKWISE_POLICY", "spread")
    monkeypatch.setenv("LINKWISE_TENTATIVE_HOLD_S", "0")
    settings = read_settings()
    assert (settings.whole_gpu_resource, settings.policy, settings.tentative_hold_s) == ("example.com/gpu", Policy.SPREAD, 0.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("POLICY", "binpack"),
        ("WHOLE_GPU_RESOURCE", ""),
        ("TENTATIVE_HOLD_S", "-1"),
        ("TENTATIVE_HOLD_S", "nan"),
        ("BIND_TIMEOUT_S", "0"),
        ("BIND_GRACE_S", "soon"),
        ("GPU_RESERVE_MIB", "-1"),
        ("GPU_RESERVE_MIB", "0.5"),
        ("DECISIONS_KEPT", "0"),
        ("DEMANDS_KEPT", "1.5"),
        ("MOST_BODY_BYTES", "100"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_the_name_of_its_variable(monkeypatch: pytest.MonkeyPatch, name: str, value: str):
    monkeypatch.setenv(f"LINKWISE_{name}", value)
    with pytest.raises(InputError, match=f"^environment variable LINKWISE_{name}={value}: (Input|String) should "):
        read_settings()


def test_every_setting_tells_what_it_is_for_and_accepts_its_default():
    for name, field in Settings.model_fields.items():
        assert field.description, name
    assert Settings.model_validate(Settings().model_dump()) == Settings()


def test_settings_do_not_change_while_the_extender_runs():
    with pytest.raises(ValidationError, match="frozen"):
        Settings().policy = Policy.SPREAD  # type: ignore[misc]


def test_policies_are_named_as_pods_write_them():
    assert [policy.value for policy in Policy] == ["pack", "spread", "gpuallocator"]
