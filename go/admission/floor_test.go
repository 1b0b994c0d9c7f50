package admission

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apiserver/pkg/admission"
)

// hooksOfFloor, set in a process of its own, makes it the hooks of [BenchmarkFloor].
const hooksOfFloor = "GATEPOST_HOOKS_OF_FLOOR"

// answerOfFloor is as long as the answer of a hook.
var answerOfFloor = bytes.Repeat([]byte{'a'}, 200)

// BenchmarkFloor is what hooks cost at least where a server asks them through a process beside it, whoever wrote that: the
// object is encoded once, goes through a unix socket, and is written to each hook over TLS. The metric cpu-us/op is CPU of
// both sides of the socket, without that of the hooks. loadtest/apiserver/run --plugin measures the same objects.
//
// If GATEPOST names the program, each cell has the plugin beside it, which asks as many JSON webhooks through Gatepost.
func BenchmarkFloor(b *testing.B) {
	addresses := startHooksOfFloor(b)
	gatepost := os.Getenv("GATEPOST")
	if gatepost == "" {
		b.Log("GATEPOST names no program: the plugin is NOT MEASURED beside the floor")
	}
	for _, hooks := range []int{1, 4, 16} {
		for _, size := range []int{2 << 10, 50 << 10, 500 << 10} {
			b.Run(fmt.Sprintf("%d/%dKiB", hooks, size>>10), func(b *testing.B) {
				b.Run("floor", func(b *testing.B) { floor(b, addresses.Raw, hooks, writtenConfigMap(size)) })
				if gatepost != "" {
					b.Run("plugin", func(b *testing.B) { throughPlugin(b, gatepost, addresses, hooks, writtenConfigMap(size)) })
				}
			})
		}
	}
}

// throughPlugin has the object validated by the plugin, which asks the first of the webhooks through the program.
func throughPlugin(b *testing.B, program string, addresses *addressesOfFloor, hooks int, object *corev1.ConfigMap) {
	folder := b.TempDir()
	var webhooks []any
	for number, address := range addresses.Webhooks[:hooks] {
		webhooks = append(webhooks, map[string]any{
			"name": fmt.Sprintf("hook-%d.floor.example.com", number), "sideEffects": "None", "admissionReviewVersions": []string{"v1"},
			"clientConfig": map[string]any{"url": "https://" + address + "/", "caBundle": addresses.Authority},
			"rules":        []any{map[string]any{"operations": []string{"CREATE"}, "apiGroups": []string{""}, "apiVersions": []string{"v1"}, "resources": []string{"configmaps"}}},
		})
	}
	document, err := json.Marshal(map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
		"metadata": map[string]any{"name": "floor"}, "webhooks": webhooks})
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "hooks.json"), document, 0o600); err != nil {
		b.Fatal(err)
	}
	socket := filepath.Join(b.TempDir(), "s")
	sidecar := exec.Command(program, "serve", "--config", folder, "--uds", socket, "--plaintext", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	var log bytes.Buffer
	sidecar.Stdout, sidecar.Stderr = &log, &log
	if err := sidecar.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = sidecar.Process.Kill()
		_ = sidecar.Wait()
	}()
	p := plugin(b, socket, "")
	request := admission.NewAttributesRecord(object, nil, corev1.SchemeGroupVersion.WithKind("ConfigMap"), object.Namespace, object.Name,
		corev1.SchemeGroupVersion.WithResource("configmaps"), "", admission.Create, &metav1.CreateOptions{}, false, ann)
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		err := p.Validate(b.Context(), request, objects)
		if err == nil {
			break
		}
		if time.Since(began) > 30*time.Second {
			b.Fatal(err, log.String())
		}
	}
	inParallel(b, func() time.Duration { return cpuTimeOf(b, sidecar.Process.Pid) }, func(int) func() {
		return func() {
			if err := p.Validate(b.Context(), request, objects); err != nil {
				b.Error(err)
			}
		}
	})
}

// cpuTimeOf is the CPU of another process, in steps of ten milliseconds.
func cpuTimeOf(b *testing.B, pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte(") "))
	fields := strings.Fields(string(text))
	var ticks time.Duration
	for _, field := range fields[11:13] {
		number, err := strconv.Atoi(field)
		if err != nil {
			b.Fatal(err)
		}
		ticks += time.Duration(number)
	}
	return ticks * time.Second / 100
}

// writtenConfigMap has a JSON of about so many bytes, with an escape every eight, as the objects of loadtest/apiserver.
func writtenConfigMap(size int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "floor", Namespace: "default"},
		Data:       map[string]string{"settings": strings.Repeat("abcdef\n", (size-130)/8)},
	}
}

// callersOfFloor is the number of requests that are under way at once, as of the writers of loadtest/apiserver.
const callersOfFloor = 8

// inParallel runs as many callers, each of which calls the function that it is given by the number of the caller, and
// reports the CPU of this process and of another, which `other` returns.
func inParallel(b *testing.B, other func() time.Duration, caller func(number int) func()) {
	var callers []func()
	for number := range callersOfFloor {
		callers = append(callers, caller(number))
	}
	var taken atomic.Int64
	b.SetParallelism((callersOfFloor + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0))
	before, beside := cpuTime(b), other()
	b.ResetTimer()
	b.RunParallel(func(loop *testing.PB) {
		number := taken.Add(1) - 1
		if number >= callersOfFloor {
			return
		}
		for loop.Next() {
			callers[number]()
		}
	})
	used, beside := cpuTime(b)-before, other()-beside
	perOp := func(used time.Duration) float64 { return float64(used) / float64(time.Microsecond) / float64(b.N) }
	b.ReportMetric(perOp(used+beside), "cpu-us/op")
	if beside > 0 {
		b.ReportMetric(perOp(beside), "sidecar-cpu-us/op")
	}
}

func floor(b *testing.B, address string, hooks int, object apiruntime.Object) {
	encoder := jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, nil, nil, jsonserializer.SerializerOptions{})
	folder := b.TempDir()
	inParallel(b, func() time.Duration { return 0 }, func(number int) func() {
		path := filepath.Join(folder, strconv.Itoa(number))
		listener, err := net.Listen("unix", path)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = listener.Close() })
		go relay(b, listener, address, hooks)
		server, err := net.Dial("unix", path)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = server.Close() })
		var encoded bytes.Buffer
		answer := make([]byte, len(answerOfFloor))
		return func() {
			encoded.Reset()
			encoded.Write(make([]byte, 8))
			if err := encoder.Encode(object, &encoded); err != nil {
				b.Error(err)
			}
			binary.BigEndian.PutUint64(encoded.Bytes(), uint64(encoded.Len()-8))
			if _, err := server.Write(encoded.Bytes()); err != nil {
				b.Error(err)
			}
			if _, err := io.ReadFull(server, answer); err != nil {
				b.Error(err)
			}
		}
	})
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

// addressesOfFloor are those of the hooks in their process.
type addressesOfFloor struct {
	// Raw is of the one that answers any message.
	Raw string
	// Webhooks are of those that answer AdmissionReviews over HTTPS.
	Webhooks []string
	// Authority is the authority of their certificate, in PEM.
	Authority []byte
}

// startHooksOfFloor starts the hooks in another process, whose CPU does not count, and returns their addresses.
func startHooksOfFloor(b *testing.B) *addressesOfFloor {
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
	addresses := new(addressesOfFloor)
	if err := json.NewDecoder(output).Decode(addresses); err != nil {
		b.Fatal(err)
	}
	return addresses
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

// serveHooksOfFloor prints the addresses of the hooks, and serves them until its input ends.
func serveHooksOfFloor() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}}}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		return err
	}
	addresses := addressesOfFloor{Raw: listener.Addr().String(), Authority: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})}
	for range 16 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		addresses.Webhooks = append(addresses.Webhooks, listener.Addr().String())
		server := &http.Server{TLSConfig: config.Clone(), Handler: http.HandlerFunc(allowReview)}
		go func() { _ = server.ServeTLS(listener, "", "") }()
	}
	if err := json.NewEncoder(os.Stdout).Encode(addresses); err != nil {
		return err
	}
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

// allowReview allows whatever an AdmissionReview asks.
func allowReview(writer http.ResponseWriter, request *http.Request) {
	var review struct {
		Request struct {
			UID string `json:"uid"`
		} `json:"request"`
	}
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Fprintf(writer, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": %q, "allowed": true}}`, review.Request.UID)
}
