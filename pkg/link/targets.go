// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// ErrRedirected ends a stream whose hub replica asked the worker to attach to another one. It is not a failure: Run dials another replica
// immediately.
var ErrRedirected = errors.New("the replica of the hub asked to attach to another one")

// ErrRenewed ends a stream in order to use a new certificate. It is not a failure: Run dials the same address again immediately.
var ErrRenewed = errors.New("attaching with the new certificate")

const (
	// maxTargets bounds the number of addresses of a hub, from the list and from DNS.
	maxTargets = 64
	// avoidFor is how long an address is the last choice after it failed or redirected the worker.
	avoidFor       = 30 * time.Second
	resolveTimeout = 5 * time.Second
)

// SplitTargets reads a list of host:port, separated by commas.
func SplitTargets(list string) ([]string, error) {
	var out []string
	for target := range strings.SplitSeq(list, ",") {
		target = strings.TrimSpace(target)
		if host, _, err := net.SplitHostPort(target); err != nil || host == "" {
			return nil, fmt.Errorf("%q is not valid, want host:port, or several separated by commas", target)
		}
		out = append(out, target)
	}
	if len(out) > maxTargets {
		return nil, fmt.Errorf("%d addresses are too many, want at most %d", len(out), maxTargets)
	}
	return out, nil
}

// address is one replica of a hub.
type address struct {
	dial string // host:port, as gRPC dials it
	host string // as configured: the name in the hub's certificate
}

// targets chooses the address of each connection. It belongs to the goroutine of Run.
type targets struct {
	list    []string
	resolve func(ctx context.Context, host string) ([]string, error) // nil: gRPC resolves names
	clock   clock.PassiveClock
	random  func(n int64) int64
	avoided map[string]time.Time // until when
}

// next returns a random address that is not avoided. If all are avoided, it returns the one whose time ends first.
func (t *targets) next(ctx context.Context) address {
	return choose(t.all(ctx), t.avoided, t.clock.Now(), t.random)
}

// choose is the pure function behind next.
func choose(all []address, avoided map[string]time.Time, now time.Time, random func(n int64) int64) address {
	var free []address
	last := all[0]
	for _, a := range all {
		until := avoided[a.dial]
		if !until.After(now) {
			free = append(free, a)
		}
		if until.Before(avoided[last.dial]) {
			last = a
		}
	}
	if len(free) == 0 {
		return last
	}
	if len(free) == 1 {
		return free[0]
	}
	return free[random(int64(len(free)))]
}

// all returns the configured addresses. A name that resolves to several addresses, such as that of a headless Service, yields each of them.
func (t *targets) all(ctx context.Context) []address {
	var out []address
	for _, target := range t.list {
		host, port, err := net.SplitHostPort(target)
		if err != nil {
			out = append(out, address{dial: target}) // Run has checked it
			continue
		}
		var ips []string
		if t.resolve != nil && net.ParseIP(host) == nil {
			bounded, cancel := context.WithTimeout(ctx, resolveTimeout)
			ips, _ = t.resolve(bounded, host) // gRPC tries again and returns the error
			cancel()
		}
		if len(ips) < 2 {
			out = append(out, address{target, host})
			continue
		}
		for _, ip := range ips[:min(len(ips), maxTargets)] {
			out = append(out, address{net.JoinHostPort(ip, port), host})
		}
	}
	return out
}

// avoid makes an address the last choice for a while.
func (t *targets) avoid(a address) {
	if t.avoided == nil {
		t.avoided = map[string]time.Time{}
	}
	now := t.clock.Now()
	for known, until := range t.avoided { // the addresses of a DNS name change over time
		if !until.After(now) {
			delete(t.avoided, known)
		}
	}
	t.avoided[a.dial] = now.Add(avoidFor)
}
