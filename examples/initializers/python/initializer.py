"""An initializer in Python: new Pods get their images by digest (IMAGE=DIGEST...; the token is in $TOKEN)."""

import argparse
import os
import pathlib
import sys

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "hooks/python/gen"))

from gatepost_initializer import OPTIONS, Initializer, Refused


def pin(images, pod):
    """The policy: a JSON Patch. An image that has its digest stays, as an object may come twice."""
    patch = []
    for field in ("initContainers", "containers"):
        for at, container in enumerate(pod["spec"].get(field) or []):
            image = container["image"]
            if image in images:
                patch.append({"op": "replace", "path": f"/spec/{field}/{at}/image", "value": images[image]})
            elif "@" not in image:
                raise Refused(f"no digest is known of image {image!r}")
    return patch


def main():
    parser = argparse.ArgumentParser(description="Pin the images of new Pods.")
    parser.add_argument("--to", default="127.0.0.1:9440", help="Gatepost")
    parser.add_argument("--ca", type=pathlib.Path, help="its authority (PEM), for TLS")
    parser.add_argument("--name", default="digest.example.com", help="the name to claim")
    parser.add_argument("images", nargs="*", help="IMAGE=IMAGE@sha256:DIGEST")
    flags = parser.parse_args()
    images = dict(entry.split("=", 1) for entry in flags.images)
    secure = flags.ca and grpc.ssl_channel_credentials(flags.ca.read_bytes())
    channel = grpc.secure_channel(flags.to, secure, OPTIONS) if secure else grpc.insecure_channel(flags.to, OPTIONS)
    initializer = Initializer(flags.name, os.environ.get("TOKEN", ""))
    initializer.run(lambda new: pin(images, new.json()), channel)


if __name__ == "__main__":
    main()
