// An initializer in Go: new Pods get their images by digest. stream.go is what every initializer needs.
//
//	TOKEN=… go run . -ca ca.crt registry.example/app:1=registry.example/app@sha256:…
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	v1 "example.com/pinned-images/gen/gatepostv1"
)

// pin is the policy: a JSON Patch of the object, or an error where it is not to be created. An image that has its
// digest stays, as a task may come twice.
func pin(images map[string]string, task *v1.InitializerTask) ([]byte, error) {
	type containers []struct{ Image string }
	var pod struct {
		Spec struct{ InitContainers, Containers containers }
	}
	if err := json.Unmarshal(task.GetReview().GetRequest().GetObject().GetRaw(), &pod); err != nil {
		return nil, err
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
				return nil, fmt.Errorf("no digest is known of image %q", container.Image)
			}
		}
	}
	return json.Marshal(patch)
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
	security := insecure.NewCredentials()
	if *ca != "" {
		var err error
		if security, err = credentials.NewClientTLSFromFile(*ca, ""); err != nil {
			log.Fatal(err)
		}
	}
	connection, err := grpc.NewClient(*to, grpc.WithTransportCredentials(security))
	if err != nil {
		log.Fatal(err)
	}
	claim := &v1.Claim{Name: *name, Token: os.Getenv("TOKEN")}
	for ; ; time.Sleep(time.Second) {
		err := attach(v1.NewInitializersClient(connection), claim, func(task *v1.InitializerTask) ([]byte, error) {
			return pin(images, task)
		})
		log.Print(err)
	}
}
