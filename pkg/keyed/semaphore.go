// SPDX-License-Identifier: Apache-2.0

// Package keyed provides a semaphore per key, which limits the operations of a key that run at the same time.
package keyed

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Semaphore admits AtOnce operations of each key. Further operations wait as long as their contexts last. Keys without operations use no
// memory (I10).
type Semaphore struct {
	AtOnce int64

	mu sync.Mutex
	of map[string]*users
}

type users struct {
	free  *semaphore.Weighted
	count int // operations that run or wait
}

// Acquire waits until the key has room. The caller calls release when its operation has ended. The error is the cause of the context's end.
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
