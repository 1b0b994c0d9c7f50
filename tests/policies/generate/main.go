// Asks kube-apiserver's own code how it decides the cases of `../cases` and the pods of Pod Security Admission, and
// writes `../answers.json` and `../pod-security`.
//
//	go run .              all
//	go run . NAME ...     the answers of these cases, to the standard output
//	go run . --types      the table of built-in types of crates/policy
//	go run . --merge SEED COUNT FILE   new objects and configurations, and what upstream makes of them
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/klog/v2"
)

func main() {
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	must(flags.Set("logtostderr", "false"))
	must(flags.Set("stderrthreshold", "FATAL"))
	klog.SetOutput(io.Discard)
	names := os.Args[1:]
	if slices.Equal(names, []string{"--types"}) {
		types()
		return
	}
	if len(names) == 4 && names[0] == "--merge" {
		merges(names[1], names[2], names[3])
		return
	}
	if len(names) > 0 {
		for _, name := range names {
			fmt.Printf("%s: %s\n", name, pretty(answer(name)))
		}
		return
	}
	paths, err := filepath.Glob("../cases/*.yaml")
	must(err)
	slices.Sort(paths)
	// Most of the time goes by waiting for informers.
	lines := make([]string, len(paths))
	places, group := make(chan struct{}, 16), sync.WaitGroup{}
	for at, path := range paths {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			name := strings.TrimSuffix(filepath.Base(path), ".yaml")
			lines[at] = fmt.Sprintf("%q: %s", name, compact(answer(name)))
		})
	}
	group.Wait()
	var out bytes.Buffer
	fmt.Fprintf(&out, "{\n%s\n}\n", strings.Join(lines, ",\n"))
	must(os.WriteFile("../answers.json", out.Bytes(), 0o644))
	podSecurity()
	types()
}

// answer decides the case with the policies and bindings in the order of their names, and in the opposite order.
func answer(name string) Answer {
	defer func() {
		if reason := recover(); reason != nil {
			panic(fmt.Sprintf("case %s: %v", name, reason))
		}
	}()
	text, err := os.ReadFile("../cases/" + name + ".yaml")
	must(err)
	one := readCase(text)
	result := Answer{
		Review:     review(one),
		Namespaces: one.namespaces,
		Params:     one.params,
		Resources:  one.Resources,
		Access:     one.Access,
		Refused:    one.refused,
		Defaults:   one.Defaults,
	}
	if len(one.refused) > 0 && !one.Stored {
		return result
	}
	decision := decide(one, false)
	result.Decision = &decision
	if other := decide(one, true); compact(other) != compact(decision) {
		result.Reversed = &other
	}
	return result
}

func compact(value any) string {
	return string(encode(value, ""))
}

func pretty(value any) string {
	return string(encode(value, " "))
}

func encode(value any, indent string) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	must(encoder.Encode(value))
	return bytes.TrimRight(out.Bytes(), "\n")
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
