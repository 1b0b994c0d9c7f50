package main

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
)

// press keeps requests going, of which every other one has to be refused, and counts those that came to anything else.
func press(server *server) error {
	pods := "/api/v1/namespaces/e2e/pods?dryRun=All"
	yes := create(pods, pod("pressed").script("pods", `{"warnings": ["asked"]}`))
	no := create(pods, pod("pressed").script("pods", `{"allowed": false, "status": {"code": 418, "message": "pressed"}}`))

	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	var ended atomic.Bool
	go func() { <-stop; ended.Store(true) }()

	var sent, surprises atomic.Int64
	surprised := func(what string, got answer, err error) {
		// The first few say it all.
		if surprises.Add(1) <= 5 {
			fmt.Printf("%s: %d %s %v\n", what, got.code, got.status.Message, err)
		}
	}
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for !ended.Load() {
				got, err := server.send(yes)
				if err != nil || got.code != 201 || len(got.warnings) != 1 {
					surprised("should be allowed, with one warning", got, err)
				}
				got, err = server.send(no)
				if err != nil || got.code != 418 {
					surprised("should be refused with 418", got, err)
				}
				sent.Add(2)
			}
		})
	}
	workers.Wait()
	fmt.Printf("%d requests, %d surprises\n", sent.Load(), surprises.Load())
	if surprises.Load() > 0 || sent.Load() < 20 {
		return fmt.Errorf("%d of %d requests came to something else", surprises.Load(), sent.Load())
	}
	return nil
}
