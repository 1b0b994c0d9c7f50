// A validating hook in Go: Pods must pin their images.
//
//	go run . -listen 127.0.0.1:9002
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"

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

// pinnedImages serves gatepost.v1.Admission. Mutate is left unimplemented: this hook only validates.
type pinnedImages struct {
	gatepostv1.UnimplementedAdmissionServer
}

// Validate is what Gatepost calls on a validating hook.
func (pinnedImages) Validate(_ context.Context, review *admissionv1.AdmissionReview) (*admissionv1.AdmissionReview, error) {
	if review.GetRequest() == nil {
		return nil, status.Error(codes.InvalidArgument, "the review has no request")
	}
	response, err := judge(review.GetRequest())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return &admissionv1.AdmissionReview{Response: response}, nil
}

// Review is every phase that this hook has, which is one.
func (hook pinnedImages) Review(ctx context.Context, review *admissionv1.AdmissionReview) (*admissionv1.AdmissionReview, error) {
	return hook.Validate(ctx, review)
}

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatalf("pinned-images: %v", err)
	}
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:9002", "where to listen; port 0 takes a free one")
	tlsCert := flag.String("tls-cert", "", "certificate chain (PEM); with -tls-key the hook speaks TLS")
	tlsKey := flag.String("tls-key", "", "private key (PEM)")
	clientCA := flag.String("client-ca", "", "only callers with a certificate from these authorities (PEM) are served")
	flag.Parse()

	options := []grpc.ServerOption{grpc.MaxRecvMsgSize(largestReview)}
	if *tlsCert != "" || *tlsKey != "" || *clientCA != "" {
		config, err := tlsConfig(*tlsCert, *tlsKey, *clientCA)
		if err != nil {
			return err
		}
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}

	server := grpc.NewServer(options...)
	gatepostv1.RegisterAdmissionServer(server, pinnedImages{})
	// Gatepost asks for the health of this very service before it puts the hook in rotation.
	healthServer := health.NewServer()
	healthServer.SetServingStatus(gatepostv1.Admission_ServiceDesc.ServiceName, healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(server, healthServer)

	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Printf("listening on %s\n", listener.Addr())

	// Calls under way finish; new ones are told to go elsewhere.
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	go func() {
		<-stop.Done()
		healthServer.Shutdown()
		server.GracefulStop()
	}()
	return server.Serve(listener)
}

func tlsConfig(certFile, keyFile, authoritiesFile string) (*tls.Config, error) {
	if certFile == "" || keyFile == "" {
		return nil, errors.New("TLS needs both -tls-cert and -tls-key")
	}
	certificate, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
	if authoritiesFile != "" {
		authorities, err := os.ReadFile(authoritiesFile)
		if err != nil {
			return nil, err
		}
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("%s: no certificate in it", authoritiesFile)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return config, nil
}
