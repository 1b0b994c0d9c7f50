import concurrent.futures
import json
import pathlib
import queue
import sys
import threading
import unittest

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "hooks/python/gen"))

from gatepost.v1 import initializers_pb2 as v1, initializers_pb2_grpc
from gatepost_initializer import Initializer, Refused


class Sidecar(initializers_pb2_grpc.InitializersServicer):
    """Plays one of these for each stream, and says when the last one is over."""

    def __init__(self, *streams):
        self.streams, self.failures, self.over = list(streams), queue.Queue(), threading.Event()

    def Attach(self, messages, context):
        play = self.streams.pop(0)
        try:
            yield from play(message for message in messages if not message.HasField("heartbeat"))
        except Exception as failure:
            self.failures.put(failure)
            self.over.set()
            raise
        if not self.streams:
            self.over.set()


def attached(messages):
    claim = next(messages).claim
    assert (claim.name, claim.token) == ("a.example.com", "t"), claim
    return v1.SidecarMessage(attached=v1.Attached(lease_milliseconds=300, window=16))


def task(number, attempt, uid):
    sent = v1.InitializerTask(task=number, attempt=attempt, milliseconds=10_000)
    sent.review.request.uid, sent.review.request.object.raw = uid, b"{}"
    return v1.SidecarMessage(task=sent)


class Test(unittest.TestCase):
    def play(self, act, *streams):
        sidecar = Sidecar(*streams)
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
        initializers_pb2_grpc.add_InitializersServicer_to_server(sidecar, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        initializer = Initializer("a.example.com", "t")
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            running = threading.Thread(target=initializer.run, args=(act, channel))
            running.start()
            self.assertTrue(sidecar.over.wait(20), "the streams were not played to their end")
            initializer.stop()
            server.stop(None)
            running.join(20)
        self.assertFalse(running.is_alive())
        self.assertTrue(sidecar.failures.empty(), sidecar.failures)

    def test_a_repeated_request_is_answered_without_acting_again(self):
        asked = []

        def act(new):
            asked.append(new.repeat)
            return [{"op": "test", "path": "", "value": new.json()}]

        def first(messages):
            yield attached(messages)
            yield task(1, 2, "u")
            answer = next(messages).answer
            self.assertEqual((answer.task, answer.attempt), (1, 2))
            self.assertEqual(json.loads(answer.done.patch), [{"op": "test", "path": "", "value": {}}])

        def second(messages):
            yield attached(messages)
            yield task(1, 1, "u")
            self.assertTrue(next(messages).answer.HasField("done"))
            self.assertEqual(asked, [True], "it is asked once, and knows that it may be a repeat")

        self.play(act, first, second)

    def test_a_refusal_is_the_process_s_own_and_a_fault_is_an_error(self):
        def act(new):
            raise Refused("wait", 429, "TooManyRequests") if new.request.uid == "full" else ValueError("secret")

        def stream(messages):
            yield attached(messages)
            for uid, code, message in [("full", 429, "wait"), ("broken", 500, "the initializer has failed")]:
                yield task(1, 1, uid)
                fail = next(messages).answer.fail
                self.assertEqual((fail.code, fail.message), (code, message))

        self.play(act, stream)


if __name__ == "__main__":
    unittest.main()
