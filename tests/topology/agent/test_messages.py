"""Messages that are declared as tables are those of protobuf."""

from topology.agent.messages import message_classes, serialized


def test_every_kind_of_field_goes_over_the_wire_and_back() -> None:
    """Texts, numbers, lists, single messages and maps."""
    made = message_classes(
        "p",
        {
            "Inner": (("name", 1, ""),),
            "Outer": (
                ("text", 1, "string"),
                ("texts", 2, "repeated string"),
                ("number", 3, "int64"),
                ("small", 4, "int32"),
                ("yes", 5, "bool"),
                ("inner", 6, "one Inner"),
                ("inners", 7, "Inner"),
                ("a_map", 8, "map of strings"),
            ),
        },
    )
    outer = made["Outer"](text="a", texts=["b", "c"], number=-1, small=2, yes=True, inner={"name": "d"}, inners=[{"name": "e"}], a_map={"k": "v"})
    back = made["Outer"].FromString(serialized(outer))
    assert back == outer
    assert (back.inner.name, [one.name for one in back.inners], dict(back.a_map)) == ("d", ["e"], {"k": "v"})


def test_packages_of_one_name_do_not_meet() -> None:
    """A pool each."""
    first = message_classes("same", {"M": (("a", 1, ""),)})["M"]
    second = message_classes("same", {"M": (("b", 1, "int64"),)})["M"]
    assert (first(a="x").a, second(b=1).b) == ("x", 1)
