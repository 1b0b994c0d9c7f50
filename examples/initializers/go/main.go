// An initializer in Go: new Pods get their images by digest. The package initializer is what every one needs.
//
//	TOKEN=… go run . -ca ca.crt registry.example/app:1=registry.example/app@sha256:…
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/digest-initializer/initializer"
)

// pin is the policy. An image that has its digest stays, as an object may come twice.
func pin(images map[string]string, object *initializer.Object) (change initializer.Change, err error) {
	type containers []struct{ Image string }
	var pod struct {
		Spec struct{ InitContainers, Containers containers }
	}
	if err := object.Read(&pod); err != nil {
		return change, err
	}
	patch := []map[string]string{}
	for field, all := range map[string]containers{
		"initContainers": pod.Spec.InitContainers,
		"containers":     pod.Spec.Containers,
	} {
		for at, container := range all {
			if digest, known := images[container.Image]; known {
				path := fmt.Sprintf("/spec/%s/%d/image", field, at)
				patch = append(patch, map[string]string{"op": "replace", "path": path, "value": digest})
			} else if !strings.Contains(container.Image, "@") {
				return change, fmt.Errorf("no digest is known of image %q", container.Image)
			}
		}
	}
	return initializer.Change{Patch: patch}, nil
}

func main() {
	to, ca := flag.String("to", "127.0.0.1:9440", "Gatepost"), flag.String("ca", "", "its authority (PEM), for TLS")
	name := flag.String("name", "digest.example.com", "the name to claim")
	flag.Parse()
	images := map[string]string{}
	for _, entry := range flag.Args() {
		image, digest, _ := strings.Cut(entry, "=")
		images[image] = digest
	}
	security, err := insecure.NewCredentials(), error(nil)
	if *ca != "" {
		security, err = credentials.NewClientTLSFromFile(*ca, "")
	}
	if err != nil {
		log.Fatal(err)
	}
	connection, err := grpc.NewClient(*to, grpc.WithTransportCredentials(security))
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client := initializer.Client{Name: *name, Token: os.Getenv("TOKEN")}
	client.Run(ctx, func(_ context.Context, object *initializer.Object) (initializer.Change, error) {
		return pin(images, object)
	}, connection)
}
