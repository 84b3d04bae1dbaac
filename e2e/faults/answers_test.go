// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// answered is where and when a sandbox was first returned.
type answered struct {
	cluster string
	at      time.Time
}

// pardon covers a cluster's claims that were in flight when it was given: they may be granted and lost before a response.
type pardon struct {
	cluster, why string
	given        time.Time
}

// note records the response of a claim that was first made at asked.
func (l *load) note(s *sandboxv1.Sandbox, asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := s.GetId()
	if _, known := l.answered[id]; known {
		return
	}
	l.answered[id] = answered{s.GetClusterId(), time.Now()}
	l.latest[s.GetClusterId()] = time.Now()
	for _, p := range l.pardons {
		if p.cluster == s.GetClusterId() && asked.Before(p.given) {
			l.excused[id] = p.why
			l.history.MayEnd(id)
		}
	}
}

// silent returns an error for clusters of which no sandbox was returned for longest.
func (l *load) silent(since time.Time, longest time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, cluster := range clusters {
		last := l.latest[cluster]
		if last.Before(since) {
			last = since
		}
		if took := time.Since(last); took > longest {
			errs = append(errs, fmt.Errorf("%s has handed out nothing for %s", cluster, took.Round(time.Second)))
		}
	}
	return errors.Join(errs...)
}

// askedSince is when a repeated claim was first made.
func (l *load) askedSince(key string) time.Time {
	now := time.Now()
	if key == "" {
		return now
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.asked[key]; !known {
		l.asked[key] = now
	}
	return l.asked[key]
}

// toldOf are the sandboxes that a caller was given and that must not be gone.
func (l *load) toldOf() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []string
	for id := range l.answered {
		if l.excused[id] == "" && id != "" { // a claim that was cancelled early has no id
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// excuse records that a cluster's sandboxes returned since then, or being claimed, may be gone because of the fault.
func (l *load) excuse(why, cluster string, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pardons = append(l.pardons, pardon{cluster, why, time.Now()})
	for id, a := range l.answered {
		if a.cluster == cluster && a.at.After(since) {
			l.excused[id] = why
			l.history.MayEnd(id)
		}
	}
}
