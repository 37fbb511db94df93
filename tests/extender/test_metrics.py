"""Names and labels of the series are an interface: alarms are written against them."""

from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from extender.metrics import Metrics


def test_series_are_golden(golden: Callable[[str, str], None]):
    metrics = Metrics()
    families = sorted(metrics.registry.collect(), key=lambda family: family.name)
    lines = [f"{family.name} ({family.type}): {family.documentation}" for family in families]
    for name, metric in sorted(vars(metrics).items()):
        labels = getattr(metric, "_labelnames", ())
        if labels:
            lines.append(f"labels of {name}: {', '.join(labels)}")
    golden("metrics.txt", "\n".join(lines) + "\n")


def test_every_series_is_one_of_linkwise_or_of_its_process_and_has_a_help_text():
    for family in Metrics().registry.collect():
        assert family.name.startswith(("linkwise_", "process_")), "the latter are what every process tells of itself"
        assert family.documentation


def test_memory_of_the_process_is_told():
    """Read when it is asked for."""
    assert (Metrics().registry.get_sample_value("process_resident_memory_bytes") or 0) > 1e6


def test_the_exposition_reads_back():
    metrics = Metrics()
    metrics.calls.labels("filter", "answered").inc()
    metrics.gpus.labels("free").set(8)
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }
    assert samples["linkwise_calls_total", ("outcome", "answered"), ("verb", "filter")] == 1
    assert samples["linkwise_gpus", ("state", "free")] == 8


def test_two_extenders_in_one_process_share_no_counter():
    one, other = Metrics(), Metrics()
    one.worse_sets.inc()
    assert b"linkwise_worse_sets_total 1.0" in one.text()
    assert b"linkwise_worse_sets_total 0.0" in other.text()


def test_decisions_are_told_by_verb_and_number_of_nodes():
    metrics = Metrics()
    for nodes in (1, 100, 101, 5000, 20_000):
        metrics.decided("filter", nodes, 0.001)
    found = {
        size: metrics.registry.get_sample_value("linkwise_decision_seconds_count", {"verb": "filter", "nodes": size})
        for size in ("100", "500", "5000", "more")
    }
    assert found == {"100": 2.0, "500": 1.0, "5000": 1.0, "more": 1.0}


def test_work_is_told_as_counters_that_only_grow():
    metrics = Metrics()
    metrics.worked("fits", kept=2, anew=1, rows=10)
    metrics.worked("fits", kept=5, anew=1, rows=12)
    value = metrics.registry.get_sample_value
    assert value("linkwise_kept_answers_total", {"answer": "fits", "kept": "true"}) == 5
    assert value("linkwise_kept_answers_total", {"answer": "fits", "kept": "false"}) == 1
    assert value("linkwise_rows_looked_at_total", {"answer": "fits"}) == 12
