package admission

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// hooksOfFloor, set in a process of its own, makes it the hooks of [BenchmarkFloor].
const hooksOfFloor = "GATEPOST_HOOKS_OF_FLOOR"

// answerOfFloor is as long as the answer of a hook.
var answerOfFloor = bytes.Repeat([]byte{'a'}, 200)

// BenchmarkFloor is what hooks cost at least where a server asks them through a process beside it, whoever wrote that: the
// object is encoded once, goes through a unix socket, and is written to each hook over TLS. The metric cpu-us/op is CPU of
// both sides of the socket, without that of the hooks. loadtest/apiserver/run --plugin measures the same objects.
func BenchmarkFloor(b *testing.B) {
	address := startHooksOfFloor(b)
	for _, hooks := range []int{1, 4, 16} {
		for _, size := range []int{2 << 10, 50 << 10, 500 << 10} {
			b.Run(fmt.Sprintf("%d/%dKiB", hooks, size>>10), func(b *testing.B) { floor(b, address, hooks, writtenConfigMap(size)) })
		}
	}
}

// writtenConfigMap has a JSON of about so many bytes, with an escape every eight, as the objects of loadtest/apiserver.
func writtenConfigMap(size int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "floor", Namespace: "default"},
		Data:       map[string]string{"settings": strings.Repeat("abcdef\n", (size-130)/8)},
	}
}

func floor(b *testing.B, address string, hooks int, object runtime.Object) {
	path := filepath.Join(b.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	go relay(b, listener, address, hooks)
	server, err := net.Dial("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	encoder := jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, nil, nil, jsonserializer.SerializerOptions{})
	var encoded bytes.Buffer
	answer := make([]byte, len(answerOfFloor))
	before := cpuTime(b)
	for b.Loop() {
		encoded.Reset()
		encoded.Write(make([]byte, 8))
		if err := encoder.Encode(object, &encoded); err != nil {
			b.Fatal(err)
		}
		binary.BigEndian.PutUint64(encoded.Bytes(), uint64(encoded.Len()-8))
		if _, err := server.Write(encoded.Bytes()); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(server, answer); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cpuTime(b)-before)/float64(time.Microsecond)/float64(b.N), "cpu-us/op")
	b.ReportMetric(float64(encoded.Len()-8), "encoded-B")
}

// relay writes what it reads from the socket to each hook, and answers once all of them have.
func relay(b *testing.B, listener net.Listener, address string, hooks int) {
	server, err := listener.Accept()
	if err != nil {
		b.Error(err)
		return
	}
	defer server.Close()
	var calls []chan []byte
	answered := make(chan error)
	for range hooks {
		hook, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			b.Error(err)
			return
		}
		call := make(chan []byte)
		calls = append(calls, call)
		go func() {
			defer hook.Close()
			answer := make([]byte, len(answerOfFloor))
			for message := range call {
				_, err := hook.Write(message)
				if err == nil {
					_, err = io.ReadFull(hook, answer)
				}
				answered <- err
			}
		}()
	}
	defer func() {
		for _, call := range calls {
			close(call)
		}
	}()
	var message []byte
	for {
		if message, err = readMessage(server, message); err != nil {
			return
		}
		for _, call := range calls {
			call <- message
		}
		for range calls {
			if err := <-answered; err != nil {
				b.Error(err)
				return
			}
		}
		if _, err := server.Write(answerOfFloor); err != nil {
			return
		}
	}
}

// readMessage reads a message behind its length, into the buffer if that is long enough.
func readMessage(from io.Reader, buffer []byte) ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return buffer, err
	}
	length := int(binary.BigEndian.Uint64(head[:]))
	if cap(buffer) < length+8 {
		buffer = make([]byte, length+8)
	}
	buffer = buffer[:length+8]
	copy(buffer, head[:])
	_, err := io.ReadFull(from, buffer[8:])
	return buffer, err
}

func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// startHooksOfFloor starts the hooks in another process, whose CPU does not count, and returns their address.
func startHooksOfFloor(b *testing.B) string {
	hooks := exec.Command(os.Args[0])
	hooks.Env = append(os.Environ(), hooksOfFloor+"=1")
	hooks.Stderr = os.Stderr
	input, err := hooks.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	output, err := hooks.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := hooks.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = input.Close()
		_ = hooks.Wait()
	})
	var address string
	if _, err := fmt.Fscanln(output, &address); err != nil {
		b.Fatal(err)
	}
	return address
}

// TestMain runs the tests, or the hooks of [BenchmarkFloor] in their process.
func TestMain(m *testing.M) {
	if os.Getenv(hooksOfFloor) == "" {
		os.Exit(m.Run())
	}
	if err := serveHooksOfFloor(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serveHooksOfFloor prints the address of the hooks, and serves them until its input ends.
func serveHooksOfFloor() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}}})
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	go func() {
		for {
			caller, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer caller.Close()
				var message []byte
				for {
					if message, err = readMessage(caller, message); err != nil {
						return
					}
					if _, err = caller.Write(answerOfFloor); err != nil {
						return
					}
				}
			}()
		}
	}()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
