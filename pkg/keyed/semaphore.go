// SPDX-License-Identifier: Apache-2.0

// Package keyed has a semaphore for each key: at most so many of a key's operations run at a time.
package keyed

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Semaphore admits AtOnce operations of each key; the next ones wait, as long as their callers do. Keys without an operation take no
// memory (I10).
type Semaphore struct {
	AtOnce int64

	mu sync.Mutex
	of map[string]*users
}

type users struct {
	free  *semaphore.Weighted
	count int // that run or wait
}

// Acquire waits until the key has room. The caller calls release when its operation is over. The error is the context's cause.
func (s *Semaphore) Acquire(ctx context.Context, key string) (release func(), err error) {
	of := s.enter(key)
	if err := of.free.Acquire(ctx, 1); err != nil {
		s.leave(key, of)
		return nil, context.Cause(ctx)
	}
	return sync.OnceFunc(func() {
		of.free.Release(1)
		s.leave(key, of)
	}), nil
}

func (s *Semaphore) enter(key string) *users {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[string]*users{}
	}
	of := s.of[key]
	if of == nil {
		of = &users{free: semaphore.NewWeighted(s.AtOnce)}
		s.of[key] = of
	}
	of.count++
	return of
}

func (s *Semaphore) leave(key string, of *users) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of.count--; of.count == 0 {
		delete(s.of, key)
	}
}
