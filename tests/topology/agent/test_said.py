"""A state that lasts is one line in the log when it begins and one when it ends."""

from structlog.testing import capture_logs

from topology.agent.said import Said


def test_a_sentence_is_said_once_until_another_or_the_end() -> None:
    with capture_logs() as lines:
        said = Said("node-a")
        for _ in range(3):
            said.say("api", "gone")
        said.say("api", "still gone, otherwise")
        said.say("look", "gone")
        said.over("api", "back")
        said.over("api", "back")
        said.over("holders", "never away")
        said.say("api", "gone")
    assert [(line["log_level"], line["event"]) for line in lines] == [
        ("warning", "gone"),
        ("warning", "still gone, otherwise"),
        ("warning", "gone"),
        ("info", "back"),
        ("warning", "gone"),
    ]
    assert {line["node"] for line in lines} == {"node-a"}
