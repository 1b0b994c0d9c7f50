// Protobufhook is an example of a hook over gRPC that takes objects in Kubernetes' protobuf envelope (`objectEncoding:
// Protobuf`), and reads them by Kubernetes' own types. It also reads JSON, as every such hook must.
//
//	go run ./internal/protobufhook -listen 127.0.0.1:9004
//
// It denies new service accounts with the label "example: deny", and says in which encoding they came.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/recognizer"
	"k8s.io/client-go/kubernetes/scheme"

	corev1 "k8s.io/api/core/v1"
)

const (
	service  = "gatepost.v1.Admission"
	maxBytes = 16 << 20
)

// The decoder tells the encodings apart by the first bytes of an object.
var objects = recognizer.NewDecoder(
	protobuf.NewSerializer(scheme.Scheme, scheme.Scheme),
	json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{}),
)

// judge decides one request.
func judge(request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	object, _, err := objects.Decode(request.Object.Raw, nil, nil)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "the object cannot be read: %v", err)
	}
	response := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
	if account, ok := object.(*corev1.ServiceAccount); ok && account.Labels["example"] == "deny" {
		response.Allowed = false
		response.Result = &metav1.Status{
			Code:    http.StatusForbidden,
			Message: fmt.Sprintf("account %q, read in %s", account.Name, encoding(request.Object.Raw)),
		}
	}
	return response, nil
}

func encoding(object []byte) string {
	if recognized, _, err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).RecognizesData(object); recognized && err == nil {
		return "protobuf"
	}
	return "JSON"
}

// codec has reviews in Kubernetes' own types, and the messages of the health service.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(value any) (mem.BufferSlice, error) {
	var text []byte
	var err error
	switch value := value.(type) {
	case *admissionv1.AdmissionReview:
		text, err = value.Marshal()
	case proto.Message:
		text, err = proto.Marshal(value)
	default:
		err = fmt.Errorf("cannot send a %T", value)
	}
	return mem.BufferSlice{mem.SliceBuffer(text)}, err
}

func (codec) Unmarshal(data mem.BufferSlice, value any) error {
	switch value := value.(type) {
	case *admissionv1.AdmissionReview:
		return value.Unmarshal(data.Materialize())
	case proto.Message:
		return proto.Unmarshal(data.Materialize(), value)
	}
	return fmt.Errorf("cannot receive a %T", value)
}

func validate(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	var review admissionv1.AdmissionReview
	if err := decode(&review); err != nil {
		return nil, err
	}
	if review.Request == nil {
		return nil, status.Error(codes.InvalidArgument, "the review has no request")
	}
	response, err := judge(review.Request)
	if err != nil {
		return nil, err
	}
	return &admissionv1.AdmissionReview{Response: response}, nil
}

func newServer() *grpc.Server {
	server := grpc.NewServer(grpc.ForceServerCodecV2(codec{}), grpc.MaxRecvMsgSize(maxBytes))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: service,
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Validate", Handler: validate}},
	}, struct{}{})
	serving := health.NewServer()
	serving.SetServingStatus(service, healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(server, serving)
	return server
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to serve on; port 0 takes a free one")
	flag.Parse()
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening grpc://%s\n", listener.Addr())
	server := newServer()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-stop
		server.Stop()
	}()
	if err := server.Serve(listener); err != nil {
		log.Fatal(err)
	}
}
