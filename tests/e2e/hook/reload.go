package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// changing is a certificate that its owner replaces: a file that another is renamed to.
type changing struct {
	certificate, key string
	now              atomic.Pointer[served]
}

// served is one of the certificates, counted from 1.
type served struct {
	number int
	pair   tls.Certificate
	at     time.Time
}

type connectionNumber struct{}

func changingCertificate(certificate, key string) (*changing, error) {
	c := &changing{certificate: certificate, key: key}
	read, err := c.read(1)
	c.now.Store(read)
	return c, err
}

func (c *changing) read(number int) (*served, error) {
	about, err := os.Stat(c.certificate)
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(c.certificate, c.key)
	return &served{number, pair, about.ModTime()}, err
}

// prepare lets the server show the certificate of the moment, and end connections that began with another one: a client
// that goes on with these would never see the new one.
func (c *changing) prepare(server *http.Server) {
	server.TLSConfig = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return &c.now.Load().pair, nil
	}}
	server.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, connectionNumber{}, c.now.Load().number)
	}
	inner := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(connectionNumber{}) != c.now.Load().number {
			w.Header().Set("Connection", "close")
		}
		inner.ServeHTTP(w, r)
	})
}

// follow reads the files again as they change.
func (c *changing) follow(life context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-life.Done():
			return
		case <-tick.C:
		}
		now := c.now.Load()
		about, err := os.Stat(c.certificate)
		if err != nil || about.ModTime().Equal(now.at) {
			continue
		}
		read, err := c.read(now.number + 1)
		if err != nil {
			log.Print("the new certificate: ", err)
			continue
		}
		c.now.Store(read)
		fmt.Printf("certificate %d\n", read.number)
	}
}
