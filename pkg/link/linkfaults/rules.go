// SPDX-License-Identifier: Apache-2.0

package linkfaults

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
)

// Rules are the content of a file, as JSON. No rules: no faults.
type Rules struct {
	Seed  uint64 `json:"seed"`
	Rules []Rule `json:"rules"`
}

// Rule affects frames of some kinds. Probabilities are between 0 and 1; the first rule for a frame's kind applies.
type Rule struct {
	// Kinds are names of the frames' fields, such as hello, report, dispatch, answer; none: all kinds.
	Kinds []string `json:"kinds,omitempty"`
	// Drop, Duplicate and Swap are the probabilities that a frame is lost, is sent twice, or is sent after its successor.
	Drop      float64 `json:"drop,omitempty"`
	Duplicate float64 `json:"duplicate,omitempty"`
	Swap      float64 `json:"swap,omitempty"`
	// DelayMillis delays a frame, while others overtake it.
	DelayMillis int64 `json:"delayMillis,omitempty"`
}

// Write replaces the rules in a file atomically.
func (r Rules) Write(file string) error {
	content, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding the link's faults: %w", err)
	}
	if err := os.WriteFile(file+".new", content, 0o600); err != nil {
		return fmt.Errorf("writing the link's faults: %w", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("writing the link's faults: %w", err)
	}
	return nil
}

// reread is the maximum delay until a change of the file is noticed.
const reread = 20 * time.Millisecond

// Source is the source of rules.
type Source struct {
	file string

	mu     sync.Mutex
	readAt time.Time
	stamp  time.Time // of the file when it was last read
	rules  Rules
	random *rand.Rand
}

// New reads the setting, @FILE. A FILE that is missing or unreadable means no faults.
func New(setting string) (*Source, error) {
	file, ok := strings.CutPrefix(setting, "@")
	if !ok {
		return nil, fmt.Errorf("the link's faults %q are not valid, want @FILE", setting)
	}
	return &Source{file: file}, nil
}

// fate is what happens to one frame.
type fate struct {
	drop, duplicate, swap bool
	delay                 time.Duration
}

// decide draws the fate of a frame of a kind.
func (s *Source) decide(kind string) fate {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh()
	for _, r := range s.rules.Rules {
		if len(r.Kinds) > 0 && !slices.Contains(r.Kinds, kind) {
			continue
		}
		chance := func(p float64) bool { return p > 0 && s.random.Float64() < p }
		return fate{
			drop: chance(r.Drop), duplicate: chance(r.Duplicate), swap: chance(r.Swap),
			delay: time.Duration(r.DelayMillis) * time.Millisecond,
		}
	}
	return fate{}
}

// refresh rereads the file if necessary. The caller holds the lock.
func (s *Source) refresh() {
	if time.Since(s.readAt) < reread {
		return
	}
	s.readAt = time.Now()
	info, err := os.Stat(s.file)
	if err != nil {
		s.rules, s.stamp = Rules{}, time.Time{}
		return
	}
	if info.ModTime().Equal(s.stamp) {
		return
	}
	content, err := os.ReadFile(s.file)
	rules := Rules{}
	if err != nil || json.Unmarshal(content, &rules) != nil {
		return // Write replaces it as a whole, so it was just removed
	}
	s.rules, s.stamp, s.random = rules, info.ModTime(), rand.New(rand.NewPCG(rules.Seed, 0))
}

// kindOf returns the name of the field that is set in the only oneof of a frame.
func kindOf(frame any) string {
	message, ok := frame.(proto.Message)
	if !ok {
		return ""
	}
	reflected := message.ProtoReflect()
	oneof := reflected.Descriptor().Oneofs().ByName("body")
	if oneof == nil {
		return ""
	}
	if set := reflected.WhichOneof(oneof); set != nil {
		return string(set.Name())
	}
	return ""
}
