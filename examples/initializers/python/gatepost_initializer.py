"""Client of Gatepost for a process that acts as an initializer.

It claims a name at every sidecar, sends heartbeats, attaches again when a stream ends, and knows a repeat. The process
itself is one function: a new object in, a JSON Patch out, or an exception.

Copy this file beside your program. It needs grpcio, and the messages generated from Gatepost's proto/ in the path.
"""

import collections
import concurrent.futures
import hashlib
import json
import queue
import sys
import threading

import grpc

from gatepost.v1 import initializers_pb2 as v1, initializers_pb2_grpc
from k8s.io.apimachinery.pkg.apis.meta.v1.generated_pb2 import Status

# An object and what stands around it (bytes); gRPC's own limit is 4 MiB. For the channels.
OPTIONS = [("grpc.max_receive_message_length", 16 << 20)]
# Seconds between heartbeats until the sidecar has said how long its lease is, and between attempts to attach.
FIRST_BEAT, FIRST_PAUSE, LONGEST_PAUSE = 3, 1, 30
# Changes that are kept for requests that come again, and bytes of the largest of them.
MOST_RECENT, LARGEST_RECENT = 1024, 64 << 10


class Refused(Exception):
    """The object is not to be created: its creator gets this code, reason and message."""

    def __init__(self, message, code=403, reason="Forbidden"):
        super().__init__(message)
        self.code, self.reason = code, reason


class NewObject:
    """A new object that is to be initialized."""

    def __init__(self, task):
        # The AdmissionRequest, with its creator, its namespace and its resource.
        self.request = task.review.request
        # Labels of the request's namespace, where they are known.
        self.namespace_labels = dict(task.namespace_labels)
        # Whether another process had the object before, and may have acted.
        self.repeat = task.attempt > 1

    def json(self):
        """The object as the initializers before this one have changed it."""
        return json.loads(self.request.object.raw)


class Initializer:
    """Acts for one initializer; the token is empty where a client certificate says who it is."""

    def __init__(self, name, token="", window=16):
        self._claim = v1.Claim(name=name, token=token, window=window)
        self._window = window
        self._recent, self._lock = collections.OrderedDict(), threading.Lock()
        self._stopping = threading.Event()

    def run(self, act, *sidecars):
        """Acts at each of these channels until `stop`; calls `act` for several objects at once, in threads.

        `act` gets a NewObject and returns the operations of a JSON Patch, or raises Refused. It is not called for an
        object that this process has changed a short time ago.
        """
        streams = [threading.Thread(target=self._attach, args=(act, sidecar), daemon=True) for sidecar in sidecars]
        for stream in streams:
            stream.start()
        for stream in streams:
            stream.join()

    def stop(self):
        """Has `run` take no more objects, and return when those it has are answered."""
        self._stopping.set()

    def _attach(self, act, sidecar):
        """Attaches to one sidecar, again and again."""
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            stream = _Stream(self, act)
            try:
                stream.last(initializers_pb2_grpc.InitializersStub(sidecar))
                print("the stream has ended", file=sys.stderr)
            except grpc.RpcError as error:
                print(f"the stream has ended: {error.code()}: {error.details()}", file=sys.stderr)
            pause = FIRST_PAUSE if stream.attached else pause
            self._stopping.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _answer(self, act, task):
        """The answer to a task, from an earlier time where the request came before."""
        answer = v1.InitializerAnswer(task=task.task, attempt=task.attempt)
        request = task.review.request
        identity = hashlib.sha256(repr((request.uid, request.object.raw)).encode()).digest()
        with self._lock:
            patch = self._recent.get(identity)
        if patch is None:
            try:
                patch = json.dumps(act(NewObject(task))).encode()
            except Refused as refused:
                answer.fail.CopyFrom(Status(code=refused.code, reason=refused.reason, message=str(refused)))
                return answer
            except Exception as error:  # A fault of the process, and no reason to end it.
                print(f"the initializer has failed: {error!r}", file=sys.stderr)
                why = "the initializer has failed"
                answer.fail.CopyFrom(Status(code=500, reason="InternalError", message=why))
                return answer
            self._keep(identity, patch)
        answer.done.patch = patch
        return answer

    def _keep(self, identity, patch):
        if len(patch) > LARGEST_RECENT:
            return
        with self._lock:
            self._recent[identity] = patch
            if len(self._recent) > MOST_RECENT:
                self._recent.popitem(last=False)


class _Stream:
    """One stream to one sidecar, from the claim of the name to the end."""

    def __init__(self, initializer, act):
        self.attached = False
        self._initializer, self._act = initializer, act
        self._say, self._ended, self._beat = queue.Queue(), threading.Event(), FIRST_BEAT

    def last(self, stub):
        self._say.put(v1.InitializerMessage(claim=self._initializer._claim))
        threading.Thread(target=self._beats, daemon=True).start()
        threading.Thread(target=self._leaves, daemon=True).start()
        acting = {}
        pool = concurrent.futures.ThreadPoolExecutor(self._initializer._window)
        try:
            for told in stub.Attach(iter(self._say.get, None)):
                if told.HasField("attached"):
                    print(f"attached as {self._initializer._claim.name}", file=sys.stderr)
                    self.attached = True
                    # Two may be lost.
                    self._beat = min(max(told.attached.lease_milliseconds / 3000, 0.1), FIRST_BEAT)
                elif told.HasField("task"):
                    number = told.task.task
                    acting[number] = pool.submit(self._acts, told.task)
                    acting[number].add_done_callback(lambda _, number=number: acting.pop(number, None))
                elif told.HasField("cancel"):
                    # One that has begun goes on, and its answer does not count.
                    if task := acting.get(told.cancel.task):
                        task.cancel()
        finally:
            self._ended.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def _acts(self, task):
        self._say.put(v1.InitializerMessage(answer=self._initializer._answer(self._act, task)))

    def _beats(self):
        while not self._ended.wait(self._beat):
            self._say.put(v1.InitializerMessage(heartbeat=v1.Heartbeat()))
        self._say.put(None)

    def _leaves(self):
        while not self._ended.is_set():
            if self._initializer._stopping.wait(0.2):
                self._say.put(v1.InitializerMessage(leave=v1.Leave()))
                return
