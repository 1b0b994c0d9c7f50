package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// patience is how long a step may take to come: a replica that was killed counts as alive for half a minute.
const patience = 150 * time.Second

// kill waits until one of these configurations is seen at the step, and kills the victim at that very moment:
//
//	announce   it is announced, and does not carry the condition yet
//	take       it carries the condition, which it did not before
//	change     it leads to another address, or trusts other authorities
//	drop       it carries the condition no more: its owner has replaced it, or Gatepost has given it back
//
// The victim is the replica that writes, the other one, or all owners. `pids` has a file with the process ID of each:
// replica-NAME and owner-NAME; and `dead` in it the instances that were killed, of which none can be the one that writes.
// Prints who was killed, a name a line. Says "armed" in the file `armed-STEP` of that folder once it is watching.
func kill(server *server, step, victim, pids string, configurations []string) error {
	if len(configurations) == 0 {
		return errors.New("kill: which configurations?")
	}
	w := watch(server)
	seen := steps{step: step, first: map[string]standing{}, quiet: map[string]bool{}}
	armed := false
	until := time.After(patience)
	for {
		select {
		case <-w.changed:
		case <-until:
			return fmt.Errorf("no %s of %s was seen", step, strings.Join(configurations, ", "))
		}
		w.lock.Lock()
		there, reached := 0, ""
		for _, configuration := range configurations {
			all := w.of(configuration)
			there += min(1, len(all))
			for name, one := range all {
				if seen.reached(name, one, w.led, w.announced[idOf(name)]) {
					reached = name
				}
			}
		}
		holder := w.holder
		w.lock.Unlock()
		if !armed && there == len(configurations) && holder != "" {
			armed = true
			if err := os.WriteFile(filepath.Join(pids, "armed-"+step), []byte("armed\n"), 0o600); err != nil {
				return err
			}
		}
		if reached != "" && armed {
			return killNow(step, victim, reached, holder, pids)
		}
	}
}

// steps is what one webhook after another has been seen at.
type steps struct {
	step  string
	first map[string]standing
	// quiet is what has been seen without an announcement: one may be left from before.
	quiet map[string]bool
}

// reached: is this webhook seen at the step, as it stands now?
func (s *steps) reached(name string, now standing, led, announced bool) bool {
	before, known := s.first[name]
	if !known {
		s.first[name], before = now, now
	}
	s.quiet[name] = s.quiet[name] || led && !announced
	switch s.step {
	case "announce":
		return announced && s.quiet[name] && !now.carries
	case "take":
		return now.carries && !before.carries
	case "change":
		return now.client != before.client
	case "drop":
		if now.carries {
			// It may be taken after the watch has begun.
			s.first[name] = now
		}
		return !now.carries && before.carries
	}
	return false
}

func killNow(step, victim, reached, holder, pids string) error {
	began := time.Now()
	dead, _ := os.ReadFile(filepath.Join(pids, "dead"))
	if strings.Contains(string(dead), holder) {
		return fmt.Errorf("%s of %s: %s is to write, and was killed before", step, reached, holder)
	}
	leader, _, _ := strings.Cut(holder, "/")
	files, err := filepath.Glob(filepath.Join(pids, "*-*"))
	if err != nil {
		return err
	}
	var killed []string
	for _, file := range files {
		kind, name, _ := strings.Cut(filepath.Base(file), "-")
		isVictim := kind == "owner" && victim == "owner" ||
			kind == "replica" && (victim == "leader" && name == leader || victim == "follower" && name != leader)
		if !isVictim {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		killed = append(killed, name)
	}
	if len(killed) == 0 {
		return fmt.Errorf("%s of %s: there is no %s", step, reached, victim)
	}
	if victim == "leader" {
		if err := os.WriteFile(filepath.Join(pids, "dead"), append(dead, holder+"\n"...), 0o600); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "%s of %s, %s writes: killed %s after %.1f ms\n", step, reached, holder, strings.Join(killed, ", "),
		milliseconds(time.Since(began)))
	for _, name := range killed {
		fmt.Println(name)
	}
	return nil
}
