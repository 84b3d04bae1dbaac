// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// answered is where and when a sandbox was answered first.
type answered struct {
	cluster string
	at      time.Time
}

// pardon is for the sandboxes of a cluster whose claims were under way when it was given: they may have been granted, and be
// lost, long before their callers are told.
type pardon struct {
	cluster, why string
	given        time.Time
}

// note remembers an answer to a claim that was first made then.
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

// silent are the clusters of which no sandbox was answered for so long.
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

// askedSince is when a claim was first made that is made now.
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

// toldOf are the sandboxes that somebody was told of and that may not be gone for a reason.
func (l *load) toldOf() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []string
	for id := range l.answered {
		if l.excused[id] == "" && id != "" { // a claim that was cancelled early never had one
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// excuse says that sandboxes of a cluster that were answered since then may be gone, for a reason that is in the nature of the
// fault, and those that are being claimed.
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
