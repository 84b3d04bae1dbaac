// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/clip"
)

// showSandbox prints one sandbox, and in a table also why it does not run, or how it failed.
func showSandbox(w io.Writer, output string, s *sandboxv1.Sandbox) error {
	if err := sandboxView.one(w, output, s); err != nil || !tabular(output) {
		return err
	}
	detail := s.GetStatusDetail()
	switch {
	case detail.GetReason() != "":
		fmt.Fprintf(w, "\n%s\n", because(detail.GetReason(), detail.GetMessage()))
	case s.GetFailureMessage() != "":
		fmt.Fprintf(w, "\n%s\n", because(s.GetFailureReason(), s.GetFailureMessage()))
	}
	if len(detail.GetEvents()) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return eventView.table(w, output == "wide", detail.GetEvents())
}

func because(reason, message string) string {
	return strings.TrimSuffix(reason+": "+clip.Line(message), ": ")
}

var eventView = view[*sandboxv1.PodEvent]{
	name: (*sandboxv1.PodEvent).GetReason,
	columns: []column[*sandboxv1.PodEvent]{
		{header: "LAST", value: func(e *sandboxv1.PodEvent) string { return since(time.Now(), e.GetLastTime()) }},
		{header: "COUNT", value: func(e *sandboxv1.PodEvent) string { return number(e.GetCount()) }},
		{header: "EVENT", value: (*sandboxv1.PodEvent).GetReason},
		{header: "MESSAGE", value: func(e *sandboxv1.PodEvent) string { return clip.Line(e.GetMessage()) }},
	},
}
