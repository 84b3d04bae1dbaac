// SPDX-License-Identifier: Apache-2.0

//go:build linux

package powercut

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Case is work, and a check of what it leaves.
type Case struct {
	// Do works in a directory, and marks what it has acknowledged or begun. It runs in its own process.
	Do func(dir string, mark func(string)) error
	// Check checks a directory that a power cut left, given the marks made before.
	Check func(dir string, marks []string) error
	// Before fills the directory with durable content; nil: it is empty.
	Before func(dir string) error
	// Restart also kills the work after every change of a name, and restarts it.
	Restart bool
}

const dirVariable = "ATOLL_POWERCUT_DIR"

// Run does the work, and checks what a power cut leaves at every point. A test calls it once, with nothing before it that the
// work does not need.
func Run(t *testing.T, c Case) {
	t.Helper()
	if dir := os.Getenv(dirVariable); dir != "" {
		work(c, dir)
	}
	cuts, err := explore(t.Name(), t.TempDir(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d states that a power cut may leave", cuts)
}

// work is the traced process.
func work(c Case, dir string) {
	marks, mu := os.NewFile(markFD, "marks"), sync.Mutex{}
	err := c.Do(dir, func(mark string) {
		mu.Lock()
		defer mu.Unlock()
		if _, err := fmt.Fprintln(marks, mark); err != nil {
			panic(err)
		}
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func explore(test, temp string, c Case) (cuts int, err error) {
	if temp, err = filepath.EvalSymlinks(temp); err != nil {
		return 0, err
	}
	e := &explorer{Case: c, test: test, temp: temp, chance: rand.New(rand.NewPCG(1, 2)), seen: map[[sha256.Size]byte]int{}}
	r, marks, err := e.run(0)
	if err != nil {
		return 0, err
	}
	if err := e.points(r, marks); err != nil || !c.Restart {
		return e.cuts, err
	}
	for kill := 1; kill <= r.renamed; kill++ {
		r, marks, err := e.run(kill)
		if err != nil {
			return e.cuts, err
		}
		if err := e.points(r, marks); err != nil {
			return e.cuts, fmt.Errorf("killed after change %d of a name, and started again: %w", kill, err)
		}
	}
	return e.cuts, nil
}

type explorer struct {
	Case
	test, temp string
	chance     *rand.Rand
	runs, cuts int
	seen       map[[sha256.Size]byte]int // the number of marks when a state was checked
}

// run does the work once: to its end, or if kill is given up to that change of a name.
func (e *explorer) run(kill int) (*recorder, []string, error) {
	e.runs++
	base := filepath.Join(e.temp, fmt.Sprintf("run-%d", e.runs))
	dir := filepath.Join(base, "disk")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	if e.Before != nil {
		if err := e.Before(dir); err != nil {
			return nil, nil, err
		}
	}
	r, err := newRecorder(dir)
	if err != nil {
		return nil, nil, err
	}
	var marks []string
	if r.killAfter = kill; kill > 0 {
		if marks, err = e.process(r, base); err != nil {
			return nil, nil, err
		}
		r.killAfter, r.begun = 0, len(r.events)
	}
	more, err := e.process(r, base)
	if err != nil {
		return nil, nil, err
	}
	// The model must equal the directory, or a call was missed.
	there, err := load(dir)
	if err != nil {
		return nil, nil, err
	}
	model := map[string][]byte{}
	r.now.tree(r.root, "", model)
	if err := differ(model, there); err != nil {
		return nil, nil, fmt.Errorf("the model of the disk is wrong: %w", err)
	}
	return r, append(marks, more...), nil
}

// process runs the work in its own process, and returns its marks.
func (e *explorer) process(r *recorder, base string) (marks []string, err error) {
	output, err := os.Create(filepath.Join(base, "output"))
	if err != nil {
		return nil, err
	}
	defer output.Close()
	marked, err := os.Create(filepath.Join(base, "marks"))
	if err != nil {
		return nil, err
	}
	defer marked.Close()
	command := []string{os.Args[0], "-test.run", "^" + strings.ReplaceAll(e.test, "/", "$/^") + "$", "-test.count", "1"}
	env := append(os.Environ(), dirVariable+"="+r.dir, "GORACE=atexit_sleep_ms=0") // the race detector waits a second otherwise
	status, err := trace(command, env, []*os.File{nil, output, output, marked}, r)
	killed := r.killAfter > 0 && status.Signaled()
	if err != nil || !killed && status.ExitStatus() != 0 {
		said, readErr := os.ReadFile(output.Name())
		return nil, errors.Join(err, readErr, fmt.Errorf("the work came to %#x: %s", status, said))
	}
	if _, err := marked.Seek(0, 0); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(marked)
	for lines.Scan() {
		marks = append(marks, lines.Text())
	}
	return marks, lines.Err()
}

// points cuts the power after every event.
func (e *explorer) points(r *recorder, marks []string) error {
	d := &disk{root: r.root}
	marked := 0
	for i, at := range r.events {
		switch {
		case at.change != nil:
			d.pending = append(d.pending, at.change)
		case at.mark:
			marked++
		default:
			d.settle(at.synced)
		}
		if i < r.begun {
			continue // as in the run without a kill
		}
		for _, fates := range e.fates(d.pending) {
			if err := e.cut(d, fates, marks[:marked]); err != nil {
				return fmt.Errorf("a power cut after step %d of %d (%s): %w", i+1, len(r.events), at, err)
			}
		}
	}
	return nil
}

func (at event) String() string {
	switch {
	case at.mark:
		return "a mark"
	case at.change != nil:
		return at.change.what
	default:
		return fmt.Sprintf("a sync of %d changes", len(at.synced))
	}
}

// oneByOne is how many of the last changes are lost and kept individually.
const oneByOne = 12

func (e *explorer) fates(pending []*change) [][]fate {
	each := func(f func(i int, c *change) fate) []fate {
		out := make([]fate, len(pending))
		for i, c := range pending {
			out[i] = f(i, c)
		}
		return out
	}
	when := func(keep bool) fate {
		if keep {
			return kept
		}
		return lost
	}
	out := [][]fate{
		each(func(int, *change) fate { return lost }),
		each(func(int, *change) fate { return kept }),
		each(func(_ int, c *change) fate { return when(c.file == nil) }),
		each(func(_ int, c *change) fate { return when(c.file != nil) }),
	}
	for one := max(0, len(pending)-oneByOne); one < len(pending); one++ {
		out = append(out,
			each(func(i int, _ *change) fate { return when(i == one) }),
			each(func(i int, _ *change) fate { return when(i != one) }),
			each(func(i int, _ *change) fate { return when(i <= one) }))
	}
	last := len(pending) - 1
	for _, f := range []fate{quarter, half, most, room} {
		out = append(out, each(func(i int, c *change) fate {
			if i == last && c.file != nil {
				return f
			}
			return kept
		}))
	}
	if len(pending) > 1 {
		for range 4 {
			out = append(out, each(func(int, *change) fate { return fate(e.chance.IntN(int(fates))) }))
		}
	}
	return out
}

// cut checks one state, unless it was checked with the same number of marks.
func (e *explorer) cut(d *disk, fates []fate, marks []string) error {
	state := d.state(fates)
	sum := digest(state)
	if seen, ok := e.seen[sum]; ok && seen == len(marks) {
		return nil
	}
	e.seen[sum] = len(marks)
	e.cuts++
	dir := filepath.Join(e.temp, "cut")
	if err := store(dir, state); err != nil {
		return err
	}
	if err := e.Check(dir, marks); err != nil {
		var said []string
		for i, c := range d.pending {
			said = append(said, fmt.Sprintf("%s: %s", c.what, fates[i]))
		}
		return fmt.Errorf("%w\nmarks: %s\nnot synced:\n  %s", err, strings.Join(marks, ", "), strings.Join(said, "\n  "))
	}
	return os.RemoveAll(dir)
}
