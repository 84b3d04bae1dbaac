// SPDX-License-Identifier: Apache-2.0

package claim

import "context"

// spawn runs work that outlives a call, and for a while the end of serving. The lock is held.
func (s *Service) spawn(work func(ctx context.Context)) {
	if s.lasting == nil {
		return
	}
	ctx := s.lasting
	s.begin(func() { work(ctx) })
}

// begin has the end of the term wait for work. The lock is held.
func (s *Service) begin(work func()) {
	s.running++
	go func() {
		defer s.finished()
		work()
	}()
}

func (s *Service) finished() {
	s.mu.Lock()
	defer s.unlock()
	if s.running--; s.running == 0 && s.drained != nil {
		close(s.drained)
		s.drained = nil
	}
}

// drain waits until nothing is under way; what is ends may begin more. From then on nothing begins.
func (s *Service) drain() {
	for {
		s.mu.Lock()
		if s.running == 0 {
			s.lasting = nil
			s.unlock()
			return
		}
		drained := make(chan struct{})
		s.drained = drained
		s.unlock()
		<-drained
	}
}
