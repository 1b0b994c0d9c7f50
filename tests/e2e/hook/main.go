// Hook is an admission webhook as most are, net/http behind TLS, that answers what the object under review asks for.
//
//	hook -cert FILE -key FILE [-listen 127.0.0.1:0] [-record] [-judged FILE] [-http1] [-reload]
//
// It plays any number of hooks at once, one a path:
//
//	/json/NAME    AdmissionReview v1 (and v1beta1), for kube-apiserver and for Gatepost; see script.go
//	/yes/NAME     the same, but always yes and at once, for measuring
//	/no/NAME      the same, but always no, for objects that cannot carry a script
//	/legacy/NAME  200, 204 or 400 without a response; see legacy.go
//	/seen         with -record: what the hooks were asked since this was last read, as JSON lines
//
// With -judged, each answer of /json is a line of that file before it is sent: hook, operation and the object's name.
// Several processes may share one file. With -reload, another certificate in the files is served as soon as it is there,
// and connections that began with the former one end after their next answer; each is a line "certificate NUMBER".
// Prints "listening ADDRESS" on stdout; HTTP/2 and HTTP/1.1 on that one port, with -http1 the latter alone. Ends on SIGTERM.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to serve on; port 0 takes a free one")
	certificate := flag.String("cert", "", "certificate chain (PEM)")
	key := flag.String("key", "", "its private key (PEM)")
	record := flag.Bool("record", false, "keep what is asked for /seen")
	judged := flag.String("judged", "", "file to note each judgement in")
	http1 := flag.Bool("http1", false, "speak no HTTP/2, in which nothing but HTTP can be answered")
	reload := flag.Bool("reload", false, "serve another certificate as soon as the files have one")
	flag.Parse()
	if err := serve(*listen, *certificate, *key, *record, *judged, *http1, *reload); err != nil {
		log.Fatal(err)
	}
}

func serve(listen, certificate, key string, record bool, judged string, http1, reload bool) error {
	seen := &seen{on: record}
	if judged != "" {
		file, err := os.OpenFile(judged, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer file.Close()
		seen.judged = file
	}
	routes := http.NewServeMux()
	routes.HandleFunc("POST /json/{hook}", func(w http.ResponseWriter, r *http.Request) { answerJSON(w, r, seen) })
	routes.HandleFunc("POST /yes/{hook}", answerYes)
	routes.HandleFunc("POST /no/{hook}", func(w http.ResponseWriter, r *http.Request) { answerNo(w, r, seen) })
	routes.HandleFunc("POST /legacy/{hook}", func(w http.ResponseWriter, r *http.Request) { answerLegacy(w, r, seen) })
	routes.HandleFunc("GET /seen", seen.drain)

	// Hangs end with the server: their callers may have gone without anyone telling.
	life, end := context.WithCancel(context.Background())
	defer end()
	server := &http.Server{
		Handler:           routes,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return life },
		// Callers that leave in the middle of a handshake are part of the trial, and not news.
		ErrorLog: log.New(os.Stderr, "", log.Ltime|log.Lmicroseconds),
	}
	if http1 {
		server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
	}
	if reload {
		changing, err := changingCertificate(certificate, key)
		if err != nil {
			return err
		}
		changing.prepare(server)
		certificate, key = "", ""
		go changing.follow(life)
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(listener, certificate, key) }()
	fmt.Printf("listening %s\n", listener.Addr())
	select {
	case err := <-failed:
		return err
	case <-stop:
		return server.Close()
	}
}
