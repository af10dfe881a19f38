// Command decide: a stand-in until the oracle's main program has all questions.
package main

import (
	"bufio"
	"encoding/json"
	"os"

	"gpufleet.node/oracle/decisions"
	"gpufleet.node/oracle/sandbox"
	"k8s.io/klog/v2"
)

func main() {
	sandbox.Enter()
	klog.SetLogger(klog.Logger{})
	questions := map[string]func(json.RawMessage) (any, error){"decisions": decisions.Decisions, "state": decisions.State}
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var head struct{ Ask string }
		if err := json.Unmarshal(line, &head); err != nil {
			panic(err)
		}
		answer, err := questions[head.Ask](line)
		if err != nil {
			answer = map[string]string{"error": err.Error()}
		}
		out.Encode(answer)
	}
}
