package main

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	admissionv1 "example.com/pinned-images/gen/admissionv1"
	gatepostv1 "example.com/pinned-images/gen/gatepostv1"
)

// An object and the one before it, each up to etcd's limits, with room to spare. The library's default is 4 MiB.
const largestReview = 16 << 20

// counting allows and counts.
type counting struct {
	gatepostv1.UnimplementedAdmissionServer
	asked *atomic.Uint64
}

// Validate is what Gatepost calls on a validating hook.
func (hook counting) Validate(_ context.Context, review *admissionv1.AdmissionReview) (*admissionv1.AdmissionReview, error) {
	if review.GetRequest().GetUid() == "" {
		return nil, status.Error(codes.InvalidArgument, "no AdmissionReview with a request")
	}
	hook.asked.Add(1)
	return &admissionv1.AdmissionReview{
		Response: &admissionv1.AdmissionResponse{Uid: review.Request.Uid, Allowed: new(true)},
	}, nil
}

// serveGRPC serves gatepost.v1.Admission with grpc-go as it comes.
func serveGRPC(listener net.Listener, config *tls.Config, asked *atomic.Uint64) error {
	options := []grpc.ServerOption{grpc.MaxRecvMsgSize(largestReview)}
	if config != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	server := grpc.NewServer(options...)
	gatepostv1.RegisterAdmissionServer(server, counting{asked: asked})
	// Gatepost asks for the health of this very service before it puts the hook in rotation.
	healthServer := health.NewServer()
	healthServer.SetServingStatus(gatepostv1.Admission_ServiceDesc.ServiceName, healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(server, healthServer)
	return server.Serve(listener)
}
