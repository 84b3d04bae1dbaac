// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestReadTrace(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"offsets", "time,claims,duration\n0,2,60\n1m30s,1,5m\n", "0s/1m0s 0s/1m0s 1m30s/5m0s"},
		{"calendar", "duration,time\n1m,2026-01-06T08:00:00Z\n2m,2026-01-06T09:00:30+01:00\n", "0s/1m0s 30s/2m0s"},
		{"defaults", "time\n# a comment\n 10 \n5.5\n", "5.5s/7s 10s/7s"},
		{"group, byte order mark", "\ufeffTime, group\n1,gpu\n", "1s/7s/gpu"},
		{"nothing", "time\n", ""},
		{"no claims", "time,claims\n5,0\n", ""},
	} {
		got, err := ReadTrace(strings.NewReader(c.text), Exactly(7*time.Second), 1)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		var all []string
		for _, claim := range got {
			text := fmt.Sprintf("%s/%s", claim.At, claim.Runs)
			if claim.Group != "" {
				text += "/" + claim.Group
			}
			all = append(all, text)
		}
		if text := strings.Join(all, " "); text != c.want {
			t.Errorf("%s: got %s, want %s", c.name, text, c.want)
		}
	}
}

func TestReadTraceSpreadsClaims(t *testing.T) {
	got, err := ReadTrace(strings.NewReader("time,claims,over\n60,1000,60\n"), Exactly(time.Second), 1)
	if err != nil || len(got) != 1000 {
		t.Fatalf("%d claims, %v", len(got), err)
	}
	if first, last := got[0].At, got[999].At; first < time.Minute || first > 61*time.Second || last < 119*time.Second || last > 2*time.Minute {
		t.Errorf("they come from %s to %s", first, last)
	}
}

func TestReadTraceSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "the trace is empty"},
		{"claims\n1\n", `no column "time"`},
		{"time,time\n", `names the column "time" twice`},
		{"time,claim\n", `a column "claim", want time, claims, duration, over, group`},
		{"time,claims\n0,1\n1,x\n", `line 3 of the trace, column claims: got "x"`},
		{"time,claims\n0,-1\n", `line 2 of the trace, column claims: got "-1"`},
		{"time,claims\n0,99999999\n", "no more than 5000000 claims"},
		{"time,claims\n0,4999999\n0,2\n", "line 3 of the trace, column claims"},
		{"time,duration\n0,0\n", "column duration"},
		{"time,duration\n0,never\n", `column duration: got "never"`},
		{"time,over\n0,-5s\n", "column over"},
		{"time\nsoon\n", `line 2 of the trace, column time: got "soon"`},
		{"time\n-1\n", "column time"},
		{"time\nNaN\n", "column time"},
		{"time\n9000h\n", "column time"},
		{"time,over\n366d,1\n", "column time"},
		{"time,over\n8784h,1\n", "a trace of a year at most"},
		{"time\n0\n2026-01-06T08:00:00Z\n", "offsets in all rows, or RFC 3339 times in all"},
		{"time\n2026-01-06T08:00:00Z\n5\n", "offsets in all rows, or RFC 3339 times in all"},
		{"time\n2026-01-06T08:00:00Z\n2026-01-06T07:59:59Z\n", "no time before the first row's"},
		{"time\n0\n\"", "line 3"},
		{"time,claims\n0\n", "line 2"},
	} {
		if _, err := ReadTrace(strings.NewReader(c.text), Exactly(time.Second), 1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q", c.text, err, c.want)
		}
	}
}

func FuzzReadTrace(f *testing.F) {
	f.Add([]byte("time,claims,duration,over,group\n0,2,60,1m,gpu\n1m30s,1,5m,,\n"))
	f.Add([]byte("duration,time\n1m,2026-01-06T08:00:00Z\n2m,2026-01-06T09:00:30+01:00\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		claims, err := readTrace(bytes.NewReader(data), Exactly(time.Second), 1, 1000)
		if err != nil {
			return
		}
		last := time.Duration(0)
		for _, c := range claims {
			if c.At < last || c.At > MaxDuration || c.Runs <= 0 || c.Runs > MaxDuration {
				t.Fatalf("%+v after %s", c, last)
			}
			last = c.At
		}
	})
}
