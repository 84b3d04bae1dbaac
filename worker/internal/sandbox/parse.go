// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// maxSeconds is the longest timeout that fits a time.Duration.
const maxSeconds = math.MaxInt64 / int64(time.Second)

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// parseTime returns the zero time for an invalid value, and for a time that the API cannot represent: the year 0 or 9999 in
// another zone.
func parseTime(v string) time.Time {
	t, err := time.Parse(time.RFC3339, v)
	if t = t.UTC(); err != nil || t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// formatSeconds rounds up, so that writing a timeout never shortens it.
func formatSeconds(d time.Duration) string {
	return strconv.FormatInt(int64((d-1)/time.Second)+1, 10)
}

// parseSeconds parses a timeout in whole seconds. It returns 0 for anything but a positive number.
func parseSeconds(v string) time.Duration {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n <= 0 || n > maxSeconds {
		return 0
	}
	return time.Duration(n) * time.Second
}

func parseExitCode(v string) *int32 {
	n, err := strconv.ParseInt(v, 10, 32)
	if err != nil {
		return nil
	}
	code := int32(n)
	return &code
}

// parseStringMap parses a JSON object of strings. It returns nil for anything else.
func parseStringMap(v string) map[string]string {
	if v == "" {
		return nil
	}
	var m map[string]string
	if json.Unmarshal([]byte(v), &m) != nil || len(m) == 0 {
		return nil
	}
	return m
}
