// SPDX-License-Identifier: Apache-2.0

package hubstate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"navix.sh/atoll/pkg/store"
)

const (
	// aheadEvery is the interval between copies while hubs run.
	aheadEvery = 5 * time.Second
	// freePause is the interval between checks whether hubs have stopped.
	freePause = 100 * time.Millisecond
)

// follow copies what hubs write until they have stopped, and then returns the open source. Its copies need not be consistent, because the
// rest is copied, and everything is compared, when no hub runs.
func (m Migration) follow(ctx context.Context) (to *target, from map[Kind]Store, err error) {
	for first := true; ; first = false {
		if from, err = m.sources(ctx); !errors.Is(err, ErrRuns) {
			return to, from, err
		}
		n, took, err := m.ahead(ctx, &to)
		switch {
		case err == nil && (first || n > 0):
			m.say(fmt.Sprintf("copied %d entries in %s; stop every hub to end the migration", n, took.Round(time.Millisecond)))
		case err == nil || errors.Is(err, store.ErrDamaged) && !first: // a hub was writing; the next copy succeeds
		case errors.Is(err, store.ErrDamaged):
			m.say(fmt.Sprintf("a copy was taken under a write, and is taken again: %v", err))
		default:
			return to, nil, err
		}
		if err := m.awaitStop(ctx, aheadEvery); err != nil {
			return to, nil, err
		}
	}
}

func (m Migration) say(text string) {
	if m.Say != nil {
		m.Say(text)
	}
}

// awaitStop waits until no hub runs on the source, or until the time is over.
func (m Migration) awaitStop(ctx context.Context, most time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := time.NewTimer(most)
	defer end.Stop()
	look := time.NewTicker(freePause)
	defer look.Stop()
	for {
		runs, err := m.runs(ctx)
		if err != nil || !runs {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until no hub runs: %w", context.Cause(ctx))
		case <-end.C:
			return nil
		case <-look.C:
		}
	}
}

// runs reports whether a hub runs on the source.
func (m Migration) runs(ctx context.Context) (bool, error) {
	if m.From.Etcd == nil {
		for _, kind := range kinds {
			if store.InUse(kind.Path(m.From.Dir)) {
				return true, nil
			}
		}
		return false, nil
	}
	s, err := m.source(ctx, Claims)
	if err != nil {
		return false, err
	}
	defer func() { _ = s.Close() }()
	etcd, is := s.(*store.Etcd)
	if !is {
		return false, nil
	}
	return etcd.Held(ctx)
}

// ahead copies the entries that differ now. Its first call opens the target.
func (m Migration) ahead(ctx context.Context, to **target) (n int, took time.Duration, err error) {
	began := time.Now()
	live := m
	if m.From.Etcd == nil {
		var stage string
		if stage, err = os.MkdirTemp(m.From.Dir, migratePrefix); err != nil {
			return 0, 0, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(stage)) }()
		for _, kind := range kinds {
			if err := copyFile(kind.Path(m.From.Dir), kind.Path(stage)); err != nil {
				return 0, 0, err
			}
		}
		live.From.Dir = stage
	}
	from := map[Kind]Store{}
	defer func() { err = errors.Join(err, closeAll(from)) }()
	for _, kind := range kinds {
		s, err := live.source(ctx, kind)
		if err != nil {
			return 0, 0, err
		}
		from[kind] = s
	}
	if *to == nil {
		if *to, err = m.target(ctx); err != nil {
			return 0, 0, err
		}
	}
	for _, kind := range kinds {
		changed, err := mirror(ctx, from[kind], (*to).stores[kind], moved)
		if n += changed; err != nil {
			return n, 0, fmt.Errorf("copying %s: %w", kind, err)
		}
	}
	return n, time.Since(began), nil
}
