"""The picture of a workflow: every edge can be seen, and whatever a workflow is called, it is XML."""

import re
from xml.etree import ElementTree

from stepwell.graph.picture import HEIGHT, svg_of
from tests.graph.conftest import graph_of

SVG = "{http://www.w3.org/2000/svg}"


def test_an_edge_past_a_column_goes_around_the_nodes_in_it(types):
    graph = graph_of(dict.fromkeys("abc", "t/pass"), "a.out>b.value", "b.out>c.value", "a.out>c.text")
    picture = ElementTree.fromstring(svg_of(graph, types, "x"))
    tops = {
        group.find(f"{SVG}text").text: float(group.find(f"{SVG}rect").get("y")) for group in picture.findall(f"{SVG}g")
    }
    paths = {path.find(f"{SVG}title").text: path.get("d") for path in picture.findall(f"{SVG}path")}
    assert set(paths) == {"out → value", "out → text"}
    (lane,) = re.findall(r" ([\d.]+) H", paths["out → text"])
    assert not tops["b"] <= float(lane) <= tops["b"] + HEIGHT


def test_hostile_names_and_cycles_are_drawn(types):
    graph = graph_of({"<&\"'\x00\u202e": "t/pass", "b": "gone/type"}, "b.out>b.value")
    text = svg_of(graph, types, "]]><script>\ud800")
    names = [text.text for text in ElementTree.fromstring(text).iter(f"{SVG}text")]
    assert names == ["]]><script>·", "<&\"'··", "t/pass", "b", "gone/type"]
