"""A validating hook in Python: Pods must pin their images.

    ./generate.sh && python hook.py --listen 127.0.0.1:9003
"""

import argparse
import pathlib
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

sys.path.insert(0, str(pathlib.Path(__file__).parent / "gen"))

from gatepost.v1 import admission_pb2_grpc
from k8s.io.api.admission.v1.generated_pb2 import AdmissionReview

import policy

SERVICE = "gatepost.v1.Admission"
# An object and the one before it, each up to etcd's limits, with room to spare. The library's default is 4 MiB.
LARGEST_REVIEW = 16 << 20
# How long calls under way may take once the hook is asked to stop, in seconds.
GRACE = 10


class PinnedImages(admission_pb2_grpc.AdmissionServicer):
    """Serves gatepost.v1.Admission. Mutate is left unimplemented: this hook only validates."""

    def Validate(self, review, context):
        """What Gatepost calls on a validating hook."""
        if not review.HasField("request"):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the review has no request")
        try:
            return AdmissionReview(response=policy.judge(review.request))
        except ValueError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    def Review(self, review, context):
        """Every phase that this hook has, which is one."""
        return self.Validate(review, context)


def credentials(flags):
    authorities = flags.client_ca.read_bytes() if flags.client_ca else None
    return grpc.ssl_server_credentials(
        [(flags.tls_key.read_bytes(), flags.tls_cert.read_bytes())],
        root_certificates=authorities,
        require_client_auth=authorities is not None,
    )


def main():
    parser = argparse.ArgumentParser(description="Refuse Pods whose images are not pinned.")
    parser.add_argument("--listen", default="127.0.0.1:9003", help="where to listen; port 0 takes a free one")
    parser.add_argument("--tls-cert", type=pathlib.Path, help="certificate chain (PEM); with --tls-key the hook speaks TLS")
    parser.add_argument("--tls-key", type=pathlib.Path, help="private key (PEM)")
    parser.add_argument(
        "--client-ca", type=pathlib.Path, help="only callers with a certificate from these authorities (PEM) are served"
    )
    flags = parser.parse_args()
    if bool(flags.tls_cert) != bool(flags.tls_key) or (flags.client_ca and not flags.tls_cert):
        parser.error("TLS needs both --tls-cert and --tls-key")

    server = grpc.server(
        ThreadPoolExecutor(max_workers=8), options=[("grpc.max_receive_message_length", LARGEST_REVIEW)]
    )
    admission_pb2_grpc.add_AdmissionServicer_to_server(PinnedImages(), server)
    # Gatepost asks for the health of this very service before it puts the hook in rotation.
    servicer = health.HealthServicer()
    servicer.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)

    if flags.tls_cert:
        port = server.add_secure_port(flags.listen, credentials(flags))
    else:
        port = server.add_insecure_port(flags.listen)
    server.start()
    host = flags.listen.rpartition(":")[0]
    print(f"listening on {host}:{port}", flush=True)

    # Calls under way finish; new ones are told to go elsewhere.
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()
    servicer.enter_graceful_shutdown()
    server.stop(GRACE).wait()


if __name__ == "__main__":
    main()
