// SPDX-License-Identifier: Apache-2.0

package quiet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/wait"
)

// Writes counts requests that changed something, or tried to, by kind: "atoll-worker patch sandboxpools/status".
type Writes map[string]int

// Since counts the writes received in a period: those of Atoll's programs, and all others.
func Since(p *plane.Plane, from, to time.Time) (atoll, others Writes, err error) {
	events, err := p.Audit()
	if err != nil {
		return nil, nil, err
	}
	atoll, others = Writes{}, Writes{}
	for _, e := range events {
		if !e.Write() || e.Resource == "leases" || e.Received.Before(from) || e.Received.After(to) {
			continue
		}
		name := agent(e) + " " + e.Verb + " " + strings.TrimSuffix(e.Resource+"/"+e.Subresource, "/")
		if Atolls(e) {
			atoll[name]++
		} else {
			others[name]++
		}
	}
	return atoll, others, nil
}

// Atolls reports whether a request is from one of Atoll's programs.
func Atolls(e plane.AuditEvent) bool { return strings.HasPrefix(e.UserAgent, "atoll-") }

// agent is the user agent without its version, which differs between machines.
func agent(e plane.AuditEvent) string {
	name, _, _ := strings.Cut(e.UserAgent, "/")
	return name
}

// Sum returns the total.
func (w Writes) Sum() (n int) {
	for _, count := range w {
		n += count
	}
	return n
}

func (w Writes) String() string {
	parts := make([]string, 0, len(w))
	for _, name := range slices.Sorted(maps.Keys(w)) {
		parts = append(parts, fmt.Sprintf("%s: %d", name, w[name]))
	}
	return strings.Join(parts, ", ")
}

// Settle waits until Atoll has written nothing for calm; because the effects of a fill continue after it.
func Settle(ctx context.Context, p *plane.Plane, calm, within time.Duration) error {
	var since time.Time
	return wait.Until(ctx, within, "Atoll to write nothing for "+calm.String(), func(context.Context) error {
		if time.Since(since) < calm {
			return errors.New("writes go on") // a look reads the whole log
		}
		before := since
		since = time.Now()
		atoll, _, err := Since(p, before, since)
		return errors.Join(err, wait.If(!before.IsZero() && len(atoll) == 0, atoll))
	})
}

// BusiestSecond returns the most writes of one object's status in any second.
func BusiestSecond(p *plane.Plane, resource, namespace, name string, from, to time.Time) (most, all int, err error) {
	events, err := p.Audit()
	if err != nil {
		return 0, 0, err
	}
	var at []time.Time
	for _, e := range events {
		if e.Write() && e.Resource == resource && e.Subresource == "status" && e.Namespace == namespace && e.Name == name &&
			!e.Received.Before(from) && !e.Received.After(to) {
			at = append(at, e.Received)
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	for i := range at {
		n := 0
		for n < len(at)-i && at[i+n].Sub(at[i]) < time.Second {
			n++
		}
		most = max(most, n)
	}
	return most, len(at), nil
}
