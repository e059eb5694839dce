"""What the latest jobs asked for."""

from __future__ import annotations

from tests.support import job

from skep.core.job import Job
from skep.core.knowledge import Knowledge
from skep.core.model import gpu_shape
from skep.core.requests import KEPT, SPARE, Requests

SHAPES = [gpu_shape(gpus) for gpus in range(1, 8)]


def many(count: int) -> Requests:
    requests = Requests()
    for number in range(count):
        requests.note([(float(number), SHAPES[number % 7])])
    return requests


def test_the_latest_count_also_for_a_reader_that_is_a_little_behind() -> None:
    for count in (3, KEPT, KEPT + SPARE, 2 * KEPT - 1, 2 * KEPT, 5 * KEPT + 17):
        requests = many(count)
        assert requests.count == count
        for behind in (0, 1, SPARE):
            numbers = range(max(count - behind - KEPT, 0), max(count - behind, 0))
            assert requests.shapes(count - behind) == [SHAPES[number % 7] for number in numbers]
    assert many(4).shapes() == SHAPES[:4]


def test_those_since_a_moment_come_latest_first() -> None:
    requests = many(6)
    assert list(requests.since(3.0)) == [SHAPES[5], SHAPES[4]]
    requests.shift(10.0)
    assert list(requests.since(13.0)) == [SHAPES[5], SHAPES[4]]


def test_what_is_saved_goes_on_alike() -> None:
    requests = many(2 * KEPT - 2)
    copy = Requests(requests.saved())
    for each in (requests, copy):
        each.note([(1e6, SHAPES[0]), (1e6, SHAPES[1])])
    assert copy.saved() == requests.saved()
    assert len(requests.saved().shapes) == 7, "each shape once"


def test_what_is_kept_does_not_depend_on_when_it_was_counted() -> None:
    for count in (2 * KEPT - 1, 2 * KEPT, 3 * KEPT - SPARE - 1, 3 * KEPT - SPARE, 5 * KEPT + 17):
        at_once = Requests()
        at_once.note([(float(number), SHAPES[number % 7]) for number in range(count)])
        assert at_once.saved() == many(count).saved()


def test_a_vc_knows_the_requests_of_its_own_jobs() -> None:
    known = Knowledge()
    red = known.of_vc("red", frozenset())
    assert red.requests.count == 0
    for gpus, vc in ((1, "red"), (2, "blue"), (4, "red")):
        known.note_request(Job(job(gpus, vc=vc).spec, 0, 0.0))
    assert red.requests.shapes() == [gpu_shape(1), gpu_shape(4)]
    assert known.requests.shapes() == [gpu_shape(1), gpu_shape(2), gpu_shape(4)]
    assert Knowledge(saved=known.saved()).of_vc("red", frozenset()).requests.shapes() == red.requests.shapes()
