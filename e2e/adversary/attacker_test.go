// SPDX-License-Identifier: Apache-2.0

package adversary_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/status"

	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/problem"
)

// asAttacker makes the test binary an attacker: it reads its ground from standard input, prints a line when it is prepared,
// waits for a line, attacks, and prints its report.
const asAttacker = "ATOLL_TEST_AS_ATTACKER"

// ground is what an attacker has.
type ground struct {
	Row     string
	Full    bool
	Seconds float64
	Nice    int
	Source  string // the attacker's address, of this attack alone; honest callers and workers have 127.0.0.1
	// Addresses of the hub, and of the local API of a worker, which needs no key on loopback.
	API, Link, Metrics, WorkerAPI string
	Peers, Gossip                 []string // addresses of the hub's replicas for each other
	Tokens                        map[string]string
	Sandbox                       string // the adversary's own, in the cluster east
	Node                          string // another, on its node's network and with a sidecar
	Canary                        string // another tenant's
	Cluster                       string // of the adversary
	Files                         link.Files
	Stolen                        link.Files // of an honest cluster
	Kubeconfig                    string     // of a ServiceAccount that edits one namespace
	Disk                          []string   // folders that the adversary reads
	Secrets                       map[string]string
	KeyHash                       string  // of a claim whose request has the secrets
	Direct                        *target // nil: the attack is at the hub
}

// report is what an attack did and what it was told.
type report struct {
	Attempts, Bytes int64
	Told            map[string]int64
}

// attacker is one attack, in its process.
type attacker struct {
	ground
	attempts, sent atomic.Int64

	mu   sync.Mutex
	told map[string]int64
}

// tell counts what the attacker was told.
func (a *attacker) tell(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.told) > 200 {
		what = "more"
	}
	a.told[what]++
}

// tellError counts an error: the reason, where it has one, else its gRPC code.
func (a *attacker) tellError(err error) {
	switch known := (*problem.Error)(nil); {
	case err == nil:
		a.tell("OK")
	case errors.As(err, &known):
		a.tell(string(known.Reason))
	default:
		st, ok := status.FromError(err)
		if !ok {
			a.tell("error: " + err.Error())
			return
		}
		if reason := problem.FromError(err).Reason; len(st.Details()) > 0 {
			a.tell(string(reason))
			return
		}
		a.tell(st.Code().String())
	}
}

// size returns the number for the default size or the full one.
func (a *attacker) size(usual, full int) int {
	if a.Full {
		return full
	}
	return usual
}

// swarm calls f again and again from n goroutines, until ctx ends. f counts its attempts.
func swarm(ctx context.Context, n int, f func(i int)) {
	atOnce(n, func(i int) {
		for ctx.Err() == nil {
			f(i)
		}
	})
}

// atOnce calls f once on each of n goroutines, and waits for them.
func atOnce(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// each calls f once for each number below n, at most 64 at a time.
func each(ctx context.Context, n int, f func(i int)) {
	var all sync.WaitGroup
	places := make(chan struct{}, 64)
	for i := range n {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			all.Wait()
			return
		}
		all.Go(func() {
			defer func() { <-places }()
			f(i)
		})
	}
	all.Wait()
}

// counted is a connection whose bytes are counted.
type counted struct {
	net.Conn
	a *attacker
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.a.sent.Add(int64(n))
	return n, err
}

// dialFrom connects from an address of the attacker's.
func (a *attacker) dialFrom(ctx context.Context, from, to string) (net.Conn, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 5 * time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", to)
	if err != nil {
		return nil, err
	}
	// What the kernel has buffered is not sent after the end; because thousands of connections would linger.
	_ = conn.(*net.TCPConn).SetLinger(0)
	return counted{conn, a}, nil
}

func (a *attacker) dial(ctx context.Context, to string) (net.Conn, error) {
	return a.dialFrom(ctx, a.Source, to)
}

// connect dials for as long as the attack takes, and tells where it cannot.
func (a *attacker) connect(ctx context.Context, to string) (conn net.Conn, ok bool) {
	conn, err := a.dial(ctx, to)
	if err != nil {
		a.tell("not connected")
		return nil, false
	}
	_ = conn.SetDeadline(until(ctx))
	return conn, true
}

// connectDeaf is connect for a connection that is not read: little fits into its buffer.
func (a *attacker) connectDeaf(ctx context.Context, to string) (conn net.Conn, ok bool) {
	if conn, ok = a.connect(ctx, to); ok {
		_ = conn.(counted).Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	}
	return conn, ok
}

// grace is how long an attack may take to end after its time.
const grace = 20 * time.Second

// attackerMain is the attacker's process.
func attackerMain() int {
	a := &attacker{told: map[string]int64{}}
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &a.ground)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "reading the ground:", err)
		return 1
	}
	// It shares the machine with what it attacks: what counts is what the attack costs the hub, not the attacker.
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, a.Nice); err != nil {
		fmt.Fprintln(os.Stderr, "lowering the priority:", err)
		return 1
	}
	fmt.Println("prepared")
	if _, err := in.ReadBytes('\n'); err != nil {
		return 1 // the suite has ended
	}
	long := time.Duration(a.Seconds * float64(time.Second))
	time.AfterFunc(long+grace, func() {
		fmt.Fprintln(os.Stderr, "the attack does not end")
		os.Exit(1)
	})
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	for _, r := range table() {
		if r.name == a.Row {
			attack := r.attack
			if a.Direct != nil {
				attack = r.direct
			}
			if err := attack(ctx, a); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(report{a.attempts.Load(), a.sent.Load(), a.told}); err != nil {
		return 1
	}
	return 0
}

// attackerProcess is an attacker's process, seen from the suite.
type attackerProcess struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	errors *strings.Builder
}

// startAttacker starts the process, and returns when it is prepared.
func startAttacker(ctx context.Context, g *ground) (*attackerProcess, error) {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), asAttacker+"=1", "GOMAXPROCS=1")
	p := &attackerProcess{cmd: cmd, errors: &strings.Builder{}}
	cmd.Stderr, cmd.WaitDelay = p.errors, time.Second
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("starting the attacker: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the attacker: %w", err)
	}
	p.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the attacker: %w", err)
	}
	if err := json.NewEncoder(p.in).Encode(g); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the attacker: %w", err), p.kill())
	}
	if _, err := p.out.ReadString('\n'); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the attacker: %w", err), p.kill())
	}
	return p, nil
}

// attack lets the attacker begin, and returns its report when it has ended.
func (p *attackerProcess) attack() (r report, err error) {
	_, err = io.WriteString(p.in, "\n")
	if err == nil {
		err = json.NewDecoder(p.out).Decode(&r)
	}
	if err := errors.Join(err, p.cmd.Wait()); err != nil {
		return r, fmt.Errorf("the attacker failed: %w: %s", err, p.errors)
	}
	return r, nil
}

func (p *attackerProcess) kill() error {
	err := p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	return err
}
