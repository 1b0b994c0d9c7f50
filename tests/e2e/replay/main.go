// Replay sends the same requests to a kube-apiserver again and again, each time with other admission hooks before it,
// and tells what of the answers was different.
//
//	replay cases -cluster DIR [-hooks ADDRESS] -out FILE     every case in order, one JSON line of outcome each
//	replay clean -cluster DIR                                removes what the cases made; no hooks must be in the way
//	replay await -cluster DIR yes|no                         until the canary's hook is asked (no), or is gone (yes)
//	replay press -cluster DIR                                yes and no in quick succession until SIGTERM; counts surprises
//	replay stream -cluster DIR -rate N [-workers N] [-mutating] -out FILE     real writes, N a second, until SIGTERM
//	replay judged [-once] [-killed] [-out FILE] [-events FILE] WRITES JUDGED NAME
//	                                                         was every write of a stream judged by every hook?
//	replay own -cluster DIR HOW ...                          an operator that keeps its registration: see own.go
//	replay kill -cluster DIR -step STEP -victim WHO -pids DIR WEBHOOK...     a crash at one step: see kill.go
//	replay change -cluster DIR CHANGE                        an owner's changes: see change.go
//	replay policies -cluster DIR -cases DIR -list FILE [-out PATH] STEP     one of policies.sh: see policies_run.go
//	replay params -cluster DIR [-limit TIME]                 how soon policies see params that change
//	replay audited -cluster DIR WORDS...                     is there an audit annotation with all of these words?
//	replay compare -expected FILE [-out FILE] DIRECT NAME=THROUGH...
//
// DIR is what ../kube/cluster.sh has filled.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "replay: cases, clean, await, press, stream, judged, audited or compare?")
		os.Exit(2)
	}
	command := os.Args[1]
	flags := flag.NewFlagSet(command, flag.ExitOnError)
	cluster := flags.String("cluster", "", "folder of the cluster")
	hooks := flags.String("hooks", "", "address of the hook server, to ask it what it has seen")
	expected := flags.String("expected", "", "table of expected differences")
	out := flags.String("out", "", "file to write to; stdout without it")
	once := flags.Bool("once", false, "creations have to be judged once")
	killed := flags.Bool("killed", false, "writes may fail, as somebody was killed in the middle of them")
	mutating := flags.Bool("mutating", false, "a mutating hook judges creations, too")
	events := flags.String("events", "", "phases of a stream")
	step := flags.String("step", "", "announce, take, change or drop")
	victim := flags.String("victim", "", "leader, follower or owner")
	pids := flags.String("pids", "", "folder with a process ID in a file for each process")
	workers := flags.Int("workers", 128, "writes at once")
	rate := flags.Float64("rate", 50, "writes a second")
	cases := flags.String("cases", "", "folder with the cases of policies and their answers")
	list := flags.String("list", "", "names of those cases of policies that are sent")
	limit := flags.Duration("limit", 2*time.Second, "time within which a changed param has to be seen")
	_ = flags.Parse(os.Args[2:])

	var err error
	switch command {
	case "cases":
		err = withServer(*cluster, func(s *server) error { return runCases(s, *hooks, *out) })
	case "clean":
		err = withServer(*cluster, clean)
	case "await":
		err = withServer(*cluster, func(s *server) error { return await(s, flags.Arg(0)) })
	case "press":
		err = withServer(*cluster, press)
	case "stream":
		err = withServer(*cluster, func(s *server) error { return stream(s, *rate, *workers, *mutating, *out) })
	case "judged":
		err = judged(flags.Arg(0), flags.Arg(1), flags.Arg(2), *out, *events, *once, *killed)
	case "own":
		err = withServer(*cluster, func(s *server) error { return own(s, flags.Args()) })
	case "kill":
		err = withServer(*cluster, func(s *server) error { return kill(s, *step, *victim, *pids, flags.Args()) })
	case "policies":
		err = withServer(*cluster, func(s *server) error { return policies(s, *cases, *list, *out, flags.Arg(0)) })
	case "params":
		err = withServer(*cluster, func(s *server) error { return params(s, *limit) })
	case "change":
		err = withServer(*cluster, func(s *server) error { return change(s, *killed, *hooks, flags.Args()) })
	case "audited":
		err = audited(*cluster, flags.Args())
	case "compare":
		err = compareFiles(*expected, *out, flags.Args())
	default:
		err = fmt.Errorf("there is no %s", command)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "replay %s: %v\n", command, err)
		os.Exit(1)
	}
}

func withServer(cluster string, do func(*server) error) error {
	server, err := open(cluster)
	if err != nil {
		return err
	}
	return do(server)
}
