// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation"
)

// upTimeout is much longer than planes take to start on a busy machine.
const upTimeout = 3 * time.Minute

// Set is a number of planes that were started together.
type Set struct {
	planes []*Plane
	state  *state
	guard  *guard
	binDir string

	down    sync.Once
	downErr error
}

// Up starts one plane for each name, in parallel, and returns when all are usable: API server ready, Nodes Ready and
// schedulable, CRDs established. If it fails, or ctx ends first, no process is left.
func Up(ctx context.Context, opts Options, names ...string) (*Set, error) {
	if err := validateNames(names); err != nil {
		return nil, err
	}
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	log := &progress{w: opts.Log}
	binDir, err := findBinaries(ctx, opts, log)
	if err != nil {
		return nil, fmt.Errorf("finding the binaries of Kubernetes: %w", err)
	}
	set := &Set{binDir: binDir}
	if set.state, err = newState(opts.Dir, log); err != nil {
		return nil, err
	}
	if set.guard, err = newGuard(set.state.dir); err != nil {
		return nil, errors.Join(err, set.state.remove())
	}

	begin := time.Now()
	upCtx, cancel := context.WithTimeoutCause(ctx, upTimeout, fmt.Errorf("not up after %s", upTimeout))
	defer cancel()
	group, groupCtx := errgroup.WithContext(upCtx)
	for i, name := range names {
		p, err := newPlane(opts, log, set, i, name)
		if err != nil {
			return nil, errors.Join(err, group.Wait(), set.Down(ctx))
		}
		set.planes = append(set.planes, p)
		group.Go(func() error {
			if err := p.up(groupCtx, opts); err != nil {
				return fmt.Errorf("bringing up plane %s: %w", p.Name, err)
			}
			log.printf("%s is up at %s after %.1fs", p.Name, p.server(), time.Since(begin).Seconds())
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, errors.Join(err, set.Down(ctx))
	}
	return set, nil
}

func validateNames(names []string) error {
	if len(names) == 0 {
		return errors.New("no plane was named")
	}
	seen := map[string]bool{}
	for _, name := range names {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return fmt.Errorf("plane name %q: %s", name, strings.Join(problems, "; "))
		}
		if seen[name] {
			return fmt.Errorf("plane name %q: given twice", name)
		}
		seen[name] = true
	}
	return nil
}

// Plane returns the plane of that name, or nil.
func (s *Set) Plane(name string) *Plane {
	for _, p := range s.planes {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// Planes returns all planes in the order of their names in Up.
func (s *Set) Planes() []*Plane { return s.planes }

// Dir is removed with the set. It holds the files of adopted commands.
func (s *Set) Dir() string { return s.state.dir }

// Adopt makes a command end with the set: Down, Ctrl-C, or the guard of a killed owner end it too. It sets SysProcAttr and adds
// to Env, so call it right before the start.
func (s *Set) Adopt(cmd *exec.Cmd) {
	s.state.adopt(cmd, s.guard.group())
}

// KubectlPath is the kubectl of the planes' version.
func (s *Set) KubectlPath() string { return filepath.Join(s.binDir, "kubectl") }

// Down kills all planes and adopted commands, and removes their files. It is quick, and ignores the end of ctx; because an
// expired test needs a clean-up too. A second call returns the first result. No set at all is down.
func (s *Set) Down(context.Context) error {
	if s == nil {
		return nil
	}
	s.down.Do(func() {
		errs := make([]error, 0, len(s.planes)+2)
		for _, p := range s.planes {
			errs = append(errs, p.Down())
		}
		// The directory before the guard: if this process dies in between, the guard still removes it.
		errs = append(errs, s.state.remove(), s.guard.release())
		s.downErr = errors.Join(errs...)
	})
	return s.downErr
}
