"""An initializer in Python: new Pods get their images by digest (IMAGE=DIGEST...; the token is in $TOKEN)."""

import argparse
import json
import os
import pathlib
import queue
import sys
import threading
import time

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "hooks/python/gen"))

from gatepost.v1 import initializers_pb2 as v1, initializers_pb2_grpc
from k8s.io.apimachinery.pkg.apis.meta.v1.generated_pb2 import Status


def pin(images, pod):
    """The policy: a JSON Patch. An image that has its digest stays, as a task may come twice."""
    patch = []
    for field in ("initContainers", "containers"):
        for at, container in enumerate(pod["spec"].get(field) or []):
            image = container["image"]
            if image in images:
                patch.append({"op": "replace", "path": f"/spec/{field}/{at}/image", "value": images[image]})
            elif "@" not in image:
                raise ValueError(f"no digest is known of image {image!r}")
    return patch


def attach(stub, claim, images):
    """One stream, from the claim to the end."""
    say, ended = queue.Queue(), threading.Event()
    say.put(v1.InitializerMessage(claim=claim))

    def beat():
        while not ended.wait(3):
            say.put(v1.InitializerMessage(heartbeat=v1.Heartbeat()))
        say.put(None)

    threading.Thread(target=beat, daemon=True).start()
    try:
        for told in stub.Attach(iter(say.get, None)):
            if told.HasField("task"):
                answer = v1.InitializerAnswer(task=told.task.task, attempt=told.task.attempt)
                try:
                    patch = pin(images, json.loads(told.task.review.request.object.raw))
                    answer.done.patch = json.dumps(patch).encode()
                except Exception as error:  # No object is a reason to end.
                    answer.fail.CopyFrom(Status(code=403, reason="Forbidden", message=str(error)))
                say.put(v1.InitializerMessage(answer=answer))
    finally:
        ended.set()


def main():
    parser = argparse.ArgumentParser(description="Pin the images of new Pods.")
    parser.add_argument("--to", default="127.0.0.1:9440", help="Gatepost")
    parser.add_argument("--ca", type=pathlib.Path, help="its authority (PEM), for TLS")
    parser.add_argument("--name", default="digest.example.com", help="the name to claim")
    parser.add_argument("images", nargs="*", help="IMAGE=IMAGE@sha256:DIGEST")
    flags = parser.parse_args()
    images = dict(entry.split("=", 1) for entry in flags.images)
    claim = v1.Claim(name=flags.name, token=os.environ.get("TOKEN", ""))
    options = [("grpc.max_receive_message_length", 16 << 20)]
    secure = flags.ca and grpc.ssl_channel_credentials(flags.ca.read_bytes())
    channel = grpc.secure_channel(flags.to, secure, options) if secure else grpc.insecure_channel(flags.to, options)
    while True:
        try:
            attach(initializers_pb2_grpc.InitializersStub(channel), claim, images)
        except grpc.RpcError as error:
            print(f"the stream has ended: {error.code()}: {error.details()}", file=sys.stderr)
        time.sleep(1)


if __name__ == "__main__":
    main()
