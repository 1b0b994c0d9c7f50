package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// streamed is one write that really happens, and what has to come of it. ../config/move.yaml has the hooks.
type streamed struct {
	// Write is the operation and the object's name: no two writes share both.
	Write string   `json:"write"`
	Hooks []string `json:"hooks"`
	Want  int      `json:"want"`
	Code  int      `json:"code"`
	// At and Took are milliseconds, At since the stream began.
	At   float64 `json:"at"`
	Took float64 `json:"took"`
	Said string  `json:"said,omitempty"`
}

// stream writes so many times a second until SIGTERM: config maps are made, changed and deleted, of every second one
// another hook wants to know, and every tenth is one that a hook refuses. Where `mutating` is said, a mutating hook judges
// creations as well. So many workers write at once: where the machine does not give the rate, fewer of them keep it from
// being asked for more than it can do. The result of each write is a line of `out`.
func stream(server *server, rate float64, workers int, mutating bool, out string) error {
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	defer file.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	// Writes that are late are made up for, so that a pause of the machine is not a quiet time for Gatepost.
	due := make(chan struct{}, 32*workers)
	go func() {
		defer close(due)
		tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				select {
				case due <- struct{}{}:
				default:
				}
			}
		}
	}()

	began := time.Now()
	lines := json.NewEncoder(file)
	var lock sync.Mutex
	var number atomic.Int64
	write := func(one streamed, call call) {
		start := time.Now()
		got, err := server.send(call)
		one.At, one.Took = milliseconds(start.Sub(began)), milliseconds(time.Since(start))
		if one.Code = got.code; one.Code != one.Want {
			one.Said = fmt.Sprint(got.status.Message, err)
		}
		if mutates(call) && got.code == one.Want && !bytes.Contains(got.text, []byte(`"mutated":"yes"`)) {
			one.Code, one.Said = 0, "stored without what the mutating hook does"
		}
		lock.Lock()
		defer lock.Unlock()
		_ = lines.Encode(one)
	}
	// Of another stream may be left what it was about to delete.
	family := strconv.FormatInt(began.UnixMilli(), 36)
	next := func() []lived {
		number := number.Add(1)
		return life(number, fmt.Sprintf("streamed-%s-%d", family, number), mutating)
	}
	var writing sync.WaitGroup
	for range workers {
		writing.Go(func() {
			for {
				for _, step := range next() {
					if _, more := <-due; !more {
						return
					}
					write(step.streamed, step.call)
				}
			}
		})
	}
	writing.Wait()
	return nil
}

// mutation is what a mutating hook does to an object that is made.
var mutation = fmt.Sprintf(`{"patchType": "JSONPatch", "patch": %q}`,
	base64.StdEncoding.EncodeToString([]byte(`[{"op": "add", "path": "/data/mutated", "value": "yes"}]`)))

// mutates: does the object of this call ask for that?
func mutates(call call) bool {
	made, is := call.body.(object)
	if !is || call.method != "POST" {
		return false
	}
	annotations, _ := made["metadata"].(map[string]any)["annotations"].(map[string]any)
	return annotations["e2e.gatepost.dev/adopt-mutating"] != nil
}

// lived is one step of an object's life.
type lived struct {
	streamed
	call
}

// life is what happens to one object of this name.
func life(number int64, name string, mutating bool) []lived {
	const places = "/api/v1/namespaces/move/configmaps"
	made := func() object { return configMap(name) }
	hooks := []string{"move-first"}
	if number%2 == 0 {
		hooks = append(hooks, "move-plain")
		made = func() object { return configMap(name).label("plain", "yes") }
	}
	first := func() object {
		if mutating {
			return made().script("adopt-mutating", mutation)
		}
		return made()
	}
	// The third is not asked about deletions.
	written := append([]string{"move-third"}, hooks...)
	creating, refusing := written, []string{"move-first"}
	if mutating {
		// Mutating hooks come first.
		creating, refusing = append([]string{"adopt-mutating"}, written...), append([]string{"adopt-mutating"}, refusing...)
	}
	if number%10 == 0 {
		// The others may not be asked any more once one has refused.
		no := made().script("move-first", `{"allowed": false, "status": {"code": 418, "message": "as it should be"}}`)
		return []lived{{streamed{Write: "CREATE " + name, Hooks: refusing, Want: 418}, create(places, no)}}
	}
	changed := made().with("data", map[string]any{"key": "changed"})
	return []lived{
		{streamed{Write: "CREATE " + name, Hooks: creating, Want: 201}, create(places, first())},
		{streamed{Write: "UPDATE " + name, Hooks: written, Want: 200}, replace(places+"/"+name, changed)},
		{streamed{Write: "DELETE " + name, Hooks: hooks, Want: 200}, remove(places + "/" + name)},
	}
}

func milliseconds(time time.Duration) float64 { return float64(time.Microseconds()) / 1000 }
