// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
)

// maxLine bounds a line that is read. Lines that Atoll writes are much shorter.
const maxLine = 1 << 20

// Read calls f with each event. It returns how many lines are not events, for example because a crash cut them off.
func Read(from io.Reader, f func(Event) error) (bad int, err error) {
	reader := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := readLine(reader)
		if text := bytes.TrimSpace(line); len(text) > 0 {
			var e Event
			if json.Unmarshal(text, &e) != nil || e.Schema == 0 {
				bad++
			} else {
				e.clean() // the file may have been written by another program
				if err := f(e); err != nil {
					return bad, err
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return bad, nil
		}
		if err != nil {
			return bad, fmt.Errorf("reading the audit: %w", err)
		}
	}
}

// readLine returns the next line. It truncates a line that is too long.
func readLine(from *bufio.Reader) (line []byte, err error) {
	for {
		part, err := from.ReadSlice('\n')
		line = append(line, part[:min(len(part), maxLine-len(line))]...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// Filter selects events. An empty field selects all. Patterns may contain * and ?.
type Filter struct {
	Since, Until time.Time
	Who          string // pattern for the name, user or team
	Verb         string // a pattern, like all below
	Resource     string
	Namespace    string
	Cluster      string
	Outcome      string
	Sandbox      string
}

// Validate rejects invalid patterns, and an outcome that does not exist.
func (f Filter) Validate() error {
	for name, pattern := range map[string]string{
		"who": f.Who, "verb": f.Verb, "resource": f.Resource, "namespace": f.Namespace, "cluster": f.Cluster, "outcome": f.Outcome,
		"sandbox": f.Sandbox,
	} {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("--%s: %q is not valid, want a name, in which * stands for any text", name, pattern)
		}
	}
	outcomes := []Outcome{OK, Refused, Failed, Unknown}
	if f.Outcome != "" && !strings.ContainsAny(f.Outcome, "*?[") && !slices.Contains(outcomes, Outcome(f.Outcome)) {
		return fmt.Errorf("--outcome: %q is not valid, want ok, refused, failed or unknown", f.Outcome)
	}
	return nil
}

// Matches reports whether the filter selects an event. It always selects a gap, because the lost lines may have matched.
func (f Filter) Matches(e *Event) bool {
	if !f.Since.IsZero() && e.Time.Before(f.Since) || !f.Until.IsZero() && !e.Time.Before(f.Until) {
		return false
	}
	if e.Stage == Gap {
		return true
	}
	who := f.Who == "" || matches(f.Who, e.Who.Name) || matches(f.Who, e.Who.User) || matches(f.Who, e.Who.Team)
	return who && matches(f.Verb, e.Verb) && matches(f.Resource, e.Object.Resource) && matches(f.Namespace, e.Object.Namespace) &&
		matches(f.Cluster, e.Cluster) && matches(f.Outcome, string(e.Outcome)) && matches(f.Sandbox, e.Object.Sandbox)
}

// matches reports whether a name matches a pattern. Unlike in path patterns, * matches slashes.
func matches(pattern, name string) bool {
	if pattern == "" {
		return true
	}
	ok, err := path.Match(strings.ReplaceAll(pattern, "/", "\x00"), strings.ReplaceAll(name, "/", "\x00"))
	return ok && err == nil
}

// Subject describes the object of an event in a few words.
func (e *Event) Subject() string {
	switch {
	case e.Stage == Gap:
		return fmt.Sprintf("%d lines were lost before this one", e.Count)
	case e.Object.Sandbox != "":
		return e.Object.Sandbox
	case e.Object.Env != "":
		return e.Object.Namespace + "/" + e.Object.Env
	case e.Object.Namespace != "" && e.Object.Name != "":
		return e.Object.Namespace + "/" + e.Object.Name
	default:
		return cmp.Or(e.Object.Name, e.Object.ClaimKeyHash)
	}
}
