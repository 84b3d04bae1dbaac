// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/faults/proxy"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
)

// hubProgram is the hub; of several replicas one, by the seed.
func (s *scenario) hubProgram() *program {
	if n := len(s.Hubs()); n > 0 {
		return s.programs[s.Hubs()[s.seed%uint64(n)].String()]
	}
	return s.programs[stack.Hub]
}

// hubKilledInReport kills the hub during complete reports, at one point after another.
func hubKilledInReport(ctx context.Context, s *scenario) error {
	slow := proxy.Faults{Up: proxy.Way{BytesPerSecond: 4 << 10}}
	for range 4 {
		for _, cluster := range clusters {
			s.links[cluster].Set(cut)
			s.links[cluster].Set(slow)
		}
		s.between(ctx, 300*time.Millisecond, 3*time.Second)
		if err := s.hubProgram().crash(ctx); err != nil {
			return err
		}
		s.between(ctx, 0, 2*time.Second)
	}
	return s.heal()
}

func (s *scenario) ledgerFile() string { return filepath.Join(s.HubData(), "claims.db") }

// storeDeleted deletes the hub's ledger of claim keys, or its volume. No key is served until every cluster has reported its own.
func storeDeleted(ctx context.Context, s *scenario) error {
	if err := s.hubProgram().kill(); err != nil {
		return err
	}
	lost := []string{s.ledgerFile()}
	if s.seed%2 == 0 {
		s.details, lost = " with the volume", append(lost, filepath.Join(s.HubData(), "registry.db"))
	}
	for _, file := range lost {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	return s.recoverLedger(ctx)
}

// recoverLedger starts a hub without a ledger while one cluster is away: keys wait for that cluster, everything else works.
func (s *scenario) recoverLedger(ctx context.Context) error {
	s.links[s.victim].Set(cut)
	if err := s.hubProgram().start(ctx); err != nil {
		return err
	}
	if err := s.waitState(ctx, s.other, sandboxv1.ClusterState_FRESH); err != nil {
		return err
	}
	key := s.load.name + "-kept-" + s.victim
	if sandbox, err := s.load.create(ctx, request(key, s.victim)); problem.FromError(err) == nil ||
		problem.FromError(err).Reason != problem.Recovering {
		return fmt.Errorf("I2: without its ledger and with %s away the hub answered key %s with %v and %w", s.victim, key, sandbox, err)
	}
	if _, err := s.claimKept(ctx, "", s.other); err != nil {
		return fmt.Errorf("I7: a claim without a key while the hub recovers: %w", err)
	}
	if err := s.heal(); err != nil {
		return err
	}
	return s.wantKept(ctx)
}

// wantKept repeats the claim of every sandbox that is kept under a key.
func (s *scenario) wantKept(ctx context.Context) error {
	for _, sandbox := range s.kept {
		if key := sandbox.GetClaimKey(); key != "" {
			got, err := s.load.claim(ctx, request(key, sandbox.GetClusterId()))
			if err != nil {
				return err
			}
			if got.GetId() != sandbox.GetId() {
				return fmt.Errorf("I2: key %s was answered %s, and now %s", key, sandbox.GetId(), got.GetId())
			}
		}
	}
	return nil
}

// storeDamaged truncates the ledger or overwrites a part of it. The hub must not start with it; the operator deletes it.
func storeDamaged(ctx context.Context, s *scenario) error {
	if err := s.hubProgram().kill(); err != nil {
		return err
	}
	if err := s.damage(); err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	hub := s.hubProgram()
	hub.mu.Lock()
	err := hub.program.Start(short)
	_ = hub.program.Kill()
	hub.mu.Unlock()
	if err == nil || !strings.Contains(err.Error(), "damaged") {
		return fmt.Errorf("a hub was started on a damaged ledger (%s), and came to: %w", s.details, err)
	}
	if err := os.Remove(s.ledgerFile()); err != nil {
		return err
	}
	return s.recoverLedger(ctx)
}

// damage damages the ledger in a random way.
func (s *scenario) damage() (err error) {
	file, err := os.OpenFile(s.ledgerFile(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	junk := make([]byte, 4096)
	for i := range junk {
		junk[i] = byte(s.random.Uint32())
	}
	switch s.seed % 3 {
	case 0:
		s.details = " truncated"
		return file.Truncate(size / 2 / 4096 * 4096)
	case 1:
		s.details = " both heads overwritten"
		_, err = file.WriteAt(append(junk, junk...), 0)
	default:
		s.details = " pages overwritten"
		for at := int64(8192); at+4096 <= size && err == nil; at += 4096 {
			_, err = file.WriteAt(junk, at)
		}
	}
	return err
}

// blackholeAtStart starts the hub while one cluster's frames are lost: the hub waits for no cluster (I7).
func blackholeAtStart(ctx context.Context, s *scenario) error {
	s.links[s.victim].Set(proxy.Both(proxy.Way{Swallow: true}))
	if err := s.hubProgram().crash(ctx); err != nil {
		return err
	}
	err := wait.Until(ctx, unharmed, s.other+" to be back", func(ctx context.Context) error {
		return s.wantState(ctx, s.other, sandboxv1.ClusterState_FRESH)
	})
	if err != nil {
		return err
	}
	for range 3 {
		if err := s.wantServed(ctx, s.other, s.victim+" is a black hole"); err != nil {
			return err
		}
		s.between(ctx, 0, 3*time.Second)
	}
	return s.heal()
}

var errNoFullDisk = errors.New("this stack's disks cannot be filled")

// diskFull stops the hub's files from growing. Only claims with a key and their releases fail.
func diskFull(ctx context.Context, s *scenario) error {
	disk, ok := s.hubProgram().program.(stack.FullDisk)
	if !ok {
		return errNoFullDisk
	}
	info, err := os.Stat(s.ledgerFile())
	if err != nil {
		return err
	}
	if err := disk.LimitFiles(min(info.Size(), 32<<10)); err != nil {
		return err
	}
	refused := 0
	for i := range 20 {
		key := fmt.Sprintf("%s-full-%d", s.load.name, i)
		if sandbox, err := s.load.create(ctx, request(key, s.other)); err != nil {
			refused++
		} else {
			s.load.holdings.Answered(sandbox)
			s.kept = append(s.kept, sandbox)
		}
	}
	s.details = fmt.Sprintf(" %d of 20 refused", refused)
	if _, err := s.claimKept(ctx, "", s.victim); err != nil {
		return fmt.Errorf("a claim without a key, which writes nothing: %w", err)
	}
	if err := errors.Join(disk.LimitFiles(-1), s.heal()); err != nil {
		return err
	}
	if refused == 0 {
		return errors.New("the disk was full and no claim with a key was refused")
	}
	return s.wantKept(ctx)
}
