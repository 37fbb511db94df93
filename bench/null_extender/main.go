// A scheduler extender that decides nothing: the price of being asked at all, in the language of kube-scheduler.
//
// Run by bench.decision_latency and bench.end_to_end. It reads each call with net/http and encoding/json as extenders written in Go do, lets every node pass,
// scores none, and binds with one POST to the API server where -server names one. It prints its URL on standard output.
package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
)

type nodesCall struct {
	Pod struct {
		Metadata struct{ Name, Namespace, UID string }
	}
	Nodes     *struct{ Items []json.RawMessage }
	NodeNames *[]string
}

type filterAnswer struct {
	Nodes                      *struct{ Items []json.RawMessage }
	NodeNames                  *[]string
	FailedNodes                map[string]string
	FailedAndUnresolvableNodes map[string]string
	Error                      string
}

type hostPriority struct {
	Host  string
	Score int64
}

type bindCall struct{ PodName, PodNamespace, PodUID, Node string }

type bindAnswer struct{ Error string }

func answer(w http.ResponseWriter, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(body)
}

func read(w http.ResponseWriter, r *http.Request, into any) bool {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

func filter(w http.ResponseWriter, r *http.Request) {
	var call nodesCall
	if read(w, r, &call) {
		answer(w, filterAnswer{Nodes: call.Nodes, NodeNames: call.NodeNames})
	}
}

func names(call nodesCall) []string {
	if call.NodeNames != nil {
		return *call.NodeNames
	}
	var found []string
	if call.Nodes != nil {
		for _, item := range call.Nodes.Items {
			var node struct{ Metadata struct{ Name string } }
			if json.Unmarshal(item, &node) == nil {
				found = append(found, node.Metadata.Name)
			}
		}
	}
	return found
}

func prioritize(w http.ResponseWriter, r *http.Request) {
	var call nodesCall
	if !read(w, r, &call) {
		return
	}
	scores := []hostPriority{}
	for _, name := range names(call) {
		scores = append(scores, hostPriority{Host: name})
	}
	answer(w, scores)
}

type binder struct {
	server, token string
	client        *http.Client
}

func (b *binder) bind(w http.ResponseWriter, r *http.Request) {
	var call bindCall
	if !read(w, r, &call) {
		return
	}
	if b.server == "" {
		answer(w, bindAnswer{})
		return
	}
	if err := b.post(call); err != nil {
		answer(w, bindAnswer{Error: err.Error()})
		return
	}
	answer(w, bindAnswer{})
}

func (b *binder) post(call bindCall) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1",
		"kind":       "Binding",
		"metadata":   map[string]string{"name": call.PodName, "namespace": call.PodNamespace, "uid": call.PodUID},
		"target":     map[string]string{"apiVersion": "v1", "kind": "Node", "name": call.Node},
	})
	if err != nil {
		return err
	}
	url := fmt.Sprintf("%s/api/v1/namespaces/%s/pods/%s/binding", b.server, call.PodNamespace, call.PodName)
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if b.token != "" {
		request.Header.Set("Authorization", "Bearer "+b.token)
	}
	response, err := b.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 300 {
		err = fmt.Errorf("binding %s/%s: %s: %s", call.PodNamespace, call.PodName, response.Status, text)
	}
	return err
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on")
	server := flag.String("server", "", "URL of the API server; without one, binds are answered and not made")
	token := flag.String("token", "", "bearer token for the API server")
	flag.Parse()

	// An API server of a test signs its own certificate. Connections are kept, as many as binds overlap.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 64, ForceAttemptHTTP2: true}
	binds := &binder{server: *server, token: *token, client: &http.Client{Transport: transport}}

	http.HandleFunc("/filter", filter)
	http.HandleFunc("/prioritize", prioritize)
	http.HandleFunc("/bind", binds.bind)
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://%s\n", listener.Addr())
	log.Fatal(http.Serve(listener, nil))
}
