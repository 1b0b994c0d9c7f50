// Measures the CPU time of reviews that policies decide, in kube-apiserver's own plugin and in Gatepost, by turns.
//
//	policies serve FOLDER CELL    answers lines "WAY COUNT": decides so many reviews, prints the CPU time in nanoseconds
//	policies compare ...          drives both sides and prints the table; see flags
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	arguments := os.Args[1:]
	switch {
	case len(arguments) == 3 && arguments[0] == "serve":
		serve(arguments[1], arguments[2])
	case len(arguments) > 0 && arguments[0] == "compare":
		compare(arguments[1:])
	default:
		fmt.Fprintln(os.Stderr, "usage: policies serve FOLDER CELL | policies compare [flags]")
		os.Exit(2)
	}
}

func serve(folder, name string) {
	side := start(folder + "/" + name)
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		way, count, _ := strings.Cut(lines.Text(), " ")
		times, err := strconv.Atoi(count)
		must(err)
		run := side.way(way)
		began := processTime()
		for range times {
			run()
		}
		fmt.Println((processTime() - began).Nanoseconds())
	}
	must(lines.Err())
}

// processTime is the CPU time that this process has used, its garbage collector included.
func processTime() time.Duration {
	var now unix.Timespec
	must(unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now))
	return time.Duration(now.Nano())
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
