// Command go-peer sends back what it is sent, over HTTP/2 as Go's net/http and grpc-go speak it.
//
// It prints the address that it listens on, and a line for every connection that it accepts.
package main

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// knobs are the settings of a server; zero is Go's default unless it says otherwise.
type knobs struct {
	// Bytes that the client may send on one stream, and on one connection, before it is given more.
	streamWindow, connectionWindow int
	// The largest frame that the client may send (net/http).
	frame int
	// Streams of one connection at a time.
	streams int
	// The client's dynamic table; negative is Go's default.
	table int
	// Every so many calls the connections are sent GOAWAY.
	goAwayEvery int64
}

var served atomic.Int64

// goesAway counts a call, and says whether connections go away with it.
func (k knobs) goesAway() bool {
	return k.goAwayEvery > 0 && served.Add(1)%k.goAwayEvery == 0
}

// announced is a listener that prints a line for every connection.
type announced struct{ net.Listener }

func (l announced) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err == nil {
		fmt.Println("connection")
	}
	return connection, err
}

func serveHTTP(listener net.Listener, config *tls.Config, k knobs) error {
	echo := func(answer http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			http.Error(answer, err.Error(), http.StatusBadRequest)
			return
		}
		if k.goesAway() {
			// net/http sends GOAWAY then, and ends the connection once its streams have ended.
			answer.Header().Set("Connection", "close")
		}
		// Its error is the client's, which has gone.
		_, _ = answer.Write(body)
	}
	server := &http.Server{
		Handler:   http.HandlerFunc(echo),
		TLSConfig: config,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          k.streams,
			MaxReadFrameSize:              k.frame,
			MaxReceiveBufferPerConnection: k.connectionWindow,
			MaxReceiveBufferPerStream:     k.streamWindow,
			MaxDecoderHeaderTableSize:     max(k.table, 0),
		},
	}
	return server.ServeTLS(listener, "", "")
}

// raw passes messages on as bytes.
type raw struct{}

func (raw) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }

func (raw) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func (raw) Name() string { return "raw" }

// shared hands the connections of one listener to one server after the other.
type shared struct {
	connections chan net.Conn
	closed      chan struct{}
	address     net.Addr
}

func (l shared) Accept() (net.Conn, error) {
	select {
	case connection := <-l.connections:
		return connection, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l shared) Close() error {
	close(l.closed)
	return nil
}

func (l shared) Addr() net.Addr { return l.address }

func serveGRPC(listener net.Listener, config *tls.Config, k knobs) error {
	connections := make(chan net.Conn)
	failed := make(chan error, 1)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				failed <- err
				return
			}
			connections <- connection
		}
	}()
	retire := make(chan struct{}, 1)
	options := []grpc.ServerOption{
		grpc.Creds(credentials.NewTLS(config)),
		grpc.ForceServerCodec(raw{}),
		grpc.MaxRecvMsgSize(16 << 20),
		grpc.InitialWindowSize(int32(k.streamWindow)),
		grpc.InitialConnWindowSize(int32(k.connectionWindow)),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			var message []byte
			if err := stream.RecvMsg(&message); err != nil {
				return err
			}
			if k.goesAway() {
				retire <- struct{}{}
			}
			return stream.SendMsg(&message)
		}),
	}
	if k.streams > 0 {
		options = append(options, grpc.MaxConcurrentStreams(uint32(k.streams)))
	}
	if k.table >= 0 {
		options = append(options, grpc.HeaderTableSize(uint32(k.table)))
	}
	for {
		server := grpc.NewServer(options...)
		own := shared{connections: connections, closed: make(chan struct{}), address: listener.Addr()}
		go func() {
			if err := server.Serve(own); err != nil && !errors.Is(err, net.ErrClosed) {
				failed <- err
			}
		}()
		select {
		case err := <-failed:
			return err
		case <-retire:
			// GOAWAY on its connections, which end with their calls; the next ones are the next server's.
			go server.GracefulStop()
		}
	}
}

func run() error {
	var k knobs
	protocol := flag.String("protocol", "http", "http or grpc")
	certificate := flag.String("cert", "", "certificate, PEM")
	key := flag.String("key", "", "key, PEM")
	flag.IntVar(&k.streamWindow, "stream-window", 0, "bytes")
	flag.IntVar(&k.connectionWindow, "connection-window", 0, "bytes")
	flag.IntVar(&k.frame, "frame", 0, "bytes")
	flag.IntVar(&k.streams, "streams", 0, "streams at a time")
	flag.IntVar(&k.table, "table", -1, "bytes")
	flag.Int64Var(&k.goAwayEvery, "goaway-every", 0, "calls")
	flag.Parse()
	pair, err := tls.LoadX509KeyPair(*certificate, *key)
	if err != nil {
		return err
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	if *protocol == "grpc" {
		return serveGRPC(announced{listener}, config, k)
	}
	return serveHTTP(announced{listener}, config, k)
}

func main() {
	if err := run(); err != nil {
		log.Print(err)
		os.Exit(1)
	}
}
