// SPDX-License-Identifier: Apache-2.0

package logging

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"navix.sh/atoll/e2e/must"
)

func TestFlagsDescribeTheLog(t *testing.T) {
	for args, want := range map[string]string{
		"":                                   `"msg":"kept"`,
		"--log-format=text":                  "kept",
		"--log-level=loud":                   `--log-level "loud" is not valid`,
		"--log-format=xml":                   `--log-format "xml" is not valid`,
		"--log-format=text --log-level=info": "kept",
	} {
		var f Flags
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		f.Bind(flags)
		must.Succeed(t, flags.Parse(strings.Fields(args)))
		var out bytes.Buffer
		log, err := f.Logger(&out)
		if err != nil {
			out.WriteString(err.Error())
		} else {
			log.V(1).Info("dropped")
			log.Info("kept")
		}
		if got := out.String(); !strings.Contains(got, want) || strings.Contains(got, "dropped") {
			t.Errorf("%q gave %q, want %q", args, got, want)
		}
	}
}

// What ends because the process stops is no error, and has no stack.
func TestANormalStopIsNoError(t *testing.T) {
	var f Flags
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f.Bind(flags)
	var out bytes.Buffer
	log, err := f.Logger(&out)
	must.Succeed(t, err)
	log.Error(errors.New("leader election lost"), "error received after stop sequence was engaged")
	if got := out.String(); !strings.Contains(got, `"level":"info"`) || !strings.Contains(got, "leader election lost") ||
		strings.Contains(got, "stacktrace") {
		t.Errorf("%s", got)
	}
	out.Reset()
	log.Error(errors.New("broken"), "failed")
	if got := out.String(); !strings.Contains(got, `"level":"error"`) || !strings.Contains(got, "stacktrace") {
		t.Errorf("%s", got)
	}
}

// A line has RFC 3339 times and no key twice, and says what a cancel means.
func TestLines(t *testing.T) {
	var f Flags
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f.Bind(flags)
	var out bytes.Buffer
	log, err := f.Logger(&out)
	must.Succeed(t, err)
	log.WithValues("cluster", "east", "pool", "a").WithName("x").WithValues("cluster", "west").
		Error(fmt.Errorf("listing: %w", context.Canceled), "failed", "cluster", "north", "msg", "mine", "error_text", "context canceled")
	decoder := json.NewDecoder(&out)
	seen := map[string]string{}
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		t.Fatal(token, err)
	}
	for decoder.More() {
		key, _ := decoder.Token()
		value, err := decoder.Token()
		must.Succeed(t, err)
		name := fmt.Sprint(key)
		if _, twice := seen[name]; twice {
			t.Errorf("%s stands twice", name)
		}
		seen[name] = fmt.Sprint(value)
	}
	if at, err := time.Parse(time.RFC3339, seen["ts"]); err != nil || time.Since(at) > time.Minute || !strings.HasSuffix(seen["ts"], "Z") {
		t.Errorf("time %q", seen["ts"])
	}
	for key, want := range map[string]string{
		"cluster": "north", "pool": "a", "msg": "failed", "msg_": "mine", "logger": "x",
		"error":      "listing: canceled: its caller has left, or this process is ending",
		"error_text": "canceled: its caller has left, or this process is ending",
	} {
		if seen[key] != want {
			t.Errorf("%s is %q, want %q", key, seen[key], want)
		}
	}
}
