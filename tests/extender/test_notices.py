import pytest

from extender.notices import Notice, NoticeReason, Silence


@pytest.mark.parametrize("reason", list(NoticeReason))
def test_reasons_are_ours_and_camel_case(reason: NoticeReason) -> None:
    assert reason.startswith("Linkwise")
    assert reason.isalnum()


def test_only_a_placement_is_no_warning() -> None:
    assert [reason for reason in NoticeReason if not reason.is_warning] == [NoticeReason.PLACED]


def test_on_a_snapshot_nobody_listens() -> None:
    Silence().record(Notice("default", "train", "uid", NoticeReason.PLACED, "on node-a"))
