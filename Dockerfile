# The image holds the binary and the authorities' certificates, and nothing else: no shell, no libraries, no package manager.
#
#   docker build -t gatepost .
#   docker run --read-only --cap-drop ALL --network host -v "$PWD/examples/config/minimal:/etc/gatepost:ro" gatepost
#
# `deploy/container/check.sh` proves without an image registry that what the final stage copies is enough to run.
ARG RUST=1.95

FROM rust:${RUST}-slim AS build
WORKDIR /src
COPY . .
# The same script runs outside of containers; it needs a C compiler (in this image) and ca-certificates (likewise).
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    deploy/container/build.sh /image

FROM scratch
COPY --from=build /image/ /
USER 65532:65532
# Configuration goes to /etc/gatepost (a volume, read-only). Nothing is ever written but the socket of --uds and the file
# of --audit-log, so the root may be read-only. gRPC is on 127.0.0.1:9440, the admin pages on 127.0.0.1:9441: the
# apiserver that asks shares the network namespace. Say `--listen` to change that.
EXPOSE 9440 9441
HEALTHCHECK --interval=5s --timeout=2s --start-period=5s --retries=3 CMD ["/gatepost", "health", "--admin", "127.0.0.1:9441"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/gatepost"]
CMD ["serve", "--config", "/etc/gatepost", "--plaintext"]
