"""Orders and cycles of a graph. Everything is linear and iterative: depth is never a limit."""

from collections import deque
from collections.abc import Sequence

Edges = Sequence[Sequence[int]]
"""The targets of each node, by index."""


def order(targets: Edges) -> tuple[list[int], list[int]]:
    """A topological order, stable in the order of the nodes; and the nodes that are on or behind a cycle."""
    incoming = [0] * len(targets)
    for followers in targets:
        for follower in followers:
            incoming[follower] += 1
    ready = deque(node for node, count in enumerate(incoming) if count == 0)
    ordered: list[int] = []
    while ready:
        node = ready.popleft()
        ordered.append(node)
        for follower in targets[node]:
            incoming[follower] -= 1
            if incoming[follower] == 0:
                ready.append(follower)
    return ordered, [node for node, count in enumerate(incoming) if count > 0]


def cycles(targets: Edges) -> list[list[int]]:
    """One shortest cycle of every strongly connected component that has one, in the order of the nodes.

    Of a component of over 2,000 nodes the cycle is the shortest one through one of its first 2,000.
    """
    found = []
    for component in _components(targets):
        inside = set(component)
        if len(component) > 1 or component[0] in targets[component[0]]:
            found.append(_shortest_cycle(targets, sorted(component), inside))
    return sorted(found)


def _components(targets: Edges) -> list[list[int]]:
    """Strongly connected components (Tarjan), with an explicit stack."""
    _, suspects = order(targets)
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    components: list[list[int]] = []
    for root in suspects:
        if root in number:
            continue
        work: list[tuple[int, int]] = [(root, 0)]
        while work:
            node, position = work.pop()
            if position == 0:
                number[node] = low[node] = len(number)
                stack.append(node)
                on_stack.add(node)
            descended = False
            for at in range(position, len(targets[node])):
                follower = targets[node][at]
                if follower not in number:
                    work += [(node, at + 1), (follower, 0)]
                    descended = True
                    break
                if follower in on_stack:
                    low[node] = min(low[node], number[follower])
            if descended:
                continue
            if low[node] == number[node]:
                component = []
                while True:
                    member = stack.pop()
                    on_stack.discard(member)
                    component.append(member)
                    if member == node:
                        break
                components.append(component)
            if work:
                parent = work[-1][0]
                low[parent] = min(low[parent], low[node])
    return components


def _shortest_cycle(targets: Edges, component: list[int], inside: set[int]) -> list[int]:
    for node in component:
        if node in targets[node]:
            return [node]
    best: list[int] = []
    budget = 4_000_000  # steps; a dense component of thousands of nodes gets the shortest cycle found in these
    for start in component[:2_000]:
        before: dict[int, int] = {start: start}
        queue = deque([start])
        depth = {start: 0}
        closing = -1
        while queue and closing < 0:
            node = queue.popleft()
            if best and depth[node] + 1 >= len(best):
                break
            for follower in targets[node]:
                budget -= 1
                if follower == start:
                    closing = node
                    break
                if follower in inside and follower not in before:
                    before[follower] = node
                    depth[follower] = depth[node] + 1
                    queue.append(follower)
        if closing >= 0:
            path = [closing]
            while path[-1] != start:
                path.append(before[path[-1]])
            best = path[::-1]
        if len(best) == 2 or budget < 0:
            break
    return best
