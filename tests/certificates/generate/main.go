// Odd certificates, and what Go's client says of each: the same client as kube-apiserver's for webhooks.
//
//	cd tests/certificates/generate && go run .
//
// writes ../odd.json anew, with new keys. Nothing in it depends on the day: dates lie far off.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
)

// row is one webhook and one caBundle.
type row struct {
	Name string `json:"name"`
	// Host is what the URL names.
	Host string `json:"host"`
	// Bundle is the caBundle, PEM.
	Bundle string `json:"bundle"`
	// Chain is what the webhook shows, PEM; its key is among the keys.
	Chain string `json:"chain"`
	Key   string `json:"key"`
	// Suites are those that the webhook has, where it speaks TLS 1.2 with few.
	Suites []uint16 `json:"suites,omitempty"`
	// Accepted says whether Go's client shakes hands; Says is its error.
	Accepted bool   `json:"accepted"`
	Says     string `json:"says,omitempty"`
}

func main() {
	rows := table()
	for i := range rows {
		err := shake(&rows[i])
		rows[i].Accepted = err == nil
		if err != nil {
			// Without what depends on the day.
			rows[i].Says, _, _ = strings.Cut(err.Error(), ": current time")
		}
		fmt.Printf("%-5v %s: %v\n", rows[i].Accepted, rows[i].Name, err)
	}
	private := map[string]string{}
	for name, key := range keys {
		private[name] = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))}))
	}
	file := must(os.Create("../odd.json"))
	defer file.Close()
	encoder := json.NewEncoder(file)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(map[string]any{"go": runtime.Version(), "keys": private, "rows": rows}); err != nil {
		panic(err)
	}
}

// shake shakes hands as client-go does with a webhook that has this caBundle.
func shake(r *row) error {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(r.Bundle)) {
		return errors.New("unable to load root certificates")
	}
	shown := tls.Certificate{PrivateKey: key(r.Key)}
	for rest := []byte(r.Chain); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		shown.Certificate = append(shown.Certificate, block.Bytes)
	}
	serving := &tls.Config{Certificates: []tls.Certificate{shown}}
	if len(r.Suites) > 0 {
		serving.MaxVersion, serving.CipherSuites = tls.VersionTLS12, r.Suites
	}
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close()
	go func() {
		there := must(listener.Accept())
		defer there.Close()
		_ = tls.Server(there, serving).Handshake()
	}()
	near := must(net.Dial("tcp", listener.Addr().String()))
	defer near.Close()
	return tls.Client(near, &tls.Config{RootCAs: pool, ServerName: r.Host, MinVersion: tls.VersionTLS12}).Handshake()
}
