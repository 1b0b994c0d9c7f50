// Hooks to measure with: many listeners in one process that allow everything, count, and do no more than a hook must.
//
//	go run . -protocol json -count 16 -tls-cert server.pem -tls-key server.key
//	go run . -protocol json -count 8 -wait 5ms -patching 4 -tls-cert server.pem -tls-key server.key
//
// Each hook has a listener of its own, as different webhooks have, so that its caller keeps connections for it alone.
// On stdout: one line `listening hook ADDRESS` each, then `listening counts ADDRESS`, where every connection is told
// how often each hook was asked, as a JSON array, and closed.
package main

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"sync/atomic"
)

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatalf("measured-hooks: %v", err)
	}
}

func run() error {
	protocol := flag.String("protocol", "json", "what the hooks speak: json or grpc")
	count := flag.Int("count", 1, "how many hooks")
	wait := flag.Duration("wait", 0, "how long each waits before it answers (json)")
	patching := flag.Int("patching", 0, "which hook patches every object, counted from 1; 0: none does (json)")
	tlsCert := flag.String("tls-cert", "", "certificate chain (PEM); with -tls-key the hooks speak TLS")
	tlsKey := flag.String("tls-key", "", "private key (PEM)")
	flag.Parse()

	var serve func(listener net.Listener, config *tls.Config, asked *atomic.Uint64, index int) error
	switch *protocol {
	case "json":
		serve = func(listener net.Listener, config *tls.Config, asked *atomic.Uint64, index int) error {
			return serveJSON(listener, config, asked, task{wait: *wait, patches: index+1 == *patching})
		}
	case "grpc":
		if *wait != 0 || *patching != 0 {
			return errors.New("-wait and -patching are for -protocol json")
		}
		serve = func(listener net.Listener, config *tls.Config, asked *atomic.Uint64, _ int) error {
			return serveGRPC(listener, config, asked)
		}
	default:
		return fmt.Errorf("-protocol %q is neither json nor grpc", *protocol)
	}
	config, err := tlsConfig(*tlsCert, *tlsKey)
	if err != nil {
		return err
	}

	asked := make([]atomic.Uint64, *count)
	failed := make(chan error)
	for index := range asked {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Printf("listening hook %s\n", listener.Addr())
		go func() { failed <- serve(listener, config.Clone(), &asked[index], index) }()
	}
	counts, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("listening counts %s\n", counts.Addr())
	go func() { failed <- tellCounts(counts, asked) }()
	return <-failed
}

// tellCounts writes how often each hook was asked to whoever connects.
func tellCounts(listener net.Listener, asked []atomic.Uint64) error {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		counts := make([]uint64, len(asked))
		for index := range asked {
			counts[index] = asked[index].Load()
		}
		// A client that hangs up early does not want to know.
		_ = json.NewEncoder(connection).Encode(counts)
		_ = connection.Close()
	}
}

// tlsConfig is nil without a certificate: then the hooks speak plain text.
func tlsConfig(certFile, keyFile string) (*tls.Config, error) {
	if certFile == "" && keyFile == "" {
		return nil, nil
	}
	if certFile == "" || keyFile == "" {
		return nil, errors.New("TLS needs both -tls-cert and -tls-key")
	}
	certificate, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}, nil
}
