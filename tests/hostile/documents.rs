//! Generates the densest request bodies: each fills one list, map or string that admission reads up to the maximum
//! body size.

use tests::table::rows;

/// Maximum size of a body that the webhook reads, in bytes.
const MAX_BODY: usize = 7 << 20;

/// Kubernetes' limit on all annotations of an object together, in bytes.
/// <https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/apimachinery/pkg/api/validation/objectmeta.go>
const MAX_ANNOTATIONS: usize = 256 << 10;

/// An AdmissionReview with one list, map or string that is grown to the size limit.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    /// Name in the test's output.
    pub(crate) name: String,
    /// The path that it is sent to.
    pub(crate) path: &'static str,
    /// Whether the review itself is malformed, so that the webhook may reject it.
    pub(crate) is_malformed: bool,
    /// The pod or workload, and then its review, with [`PLACEHOLDER`] where it is filled.
    template: String,
    fill: Fill,
    /// Maximum size, in bytes.
    capacity: usize,
}

/// The content that fills a document.
#[derive(Debug, Clone)]
enum Fill {
    /// Comma-separated copies of an element or a member; `~` becomes the copy's number.
    Items(String),
    /// Copies of a text.
    Text(&'static str),
    /// Opening text, innermost value, closing text, and the depth of nesting.
    Nested(&'static str, &'static str, &'static str, usize),
    /// A text, once.
    Once(String),
}

/// Marks the place of a template that is filled.
const PLACEHOLDER: char = '@';

/// Marks the place of an object into which a pod, or a table's content, is put.
const POD: char = '%';

/// The annotation that requests injection, `INJECT` in tables.
const INJECT_ANNOTATION: &str = r#""envoy-drainer.dev/inject":"true""#;

/// A control character that JSON does not have to escape and that Rust's `Debug` writes in six bytes.
const UNESCAPED_CONTROL: &str = "\u{7f}";

/// Maximum length of a string that admission reads, in bytes without escapes.
const MAX_TEXT: usize = 256 << 10;

/// An escaped control character, six bytes in JSON.
const ESCAPED_CONTROL: &str = r"\u0001";

/// An escaped backslash, which doubles in size each time it is escaped again.
const BACKSLASH: &str = r"\\";

/// The places of a document that the tables fill, with [`POD`] for the content.
const PLACES: &str = r#"
    whole            | %
    pod              | {"metadata":{"annotations":{INJECT}},%}
    spec alone       | {"metadata":{"annotations":{INJECT}},"spec":{%}}
    spec             | {"metadata":{"annotations":{INJECT}},"spec":{"containers":[{"name":"envoy"}],%}}
    container        | {"metadata":{"annotations":{INJECT}},"spec":{"containers":[{"name":"envoy",%}]}}
    metadata alone   | {"metadata":{"annotations":{INJECT},%}}
    metadata         | {"metadata":{"annotations":{INJECT},%},"spec":{"containers":[{"name":"envoy"}]}}
    annotations      | {"metadata":{"annotations":{INJECT,%}},"spec":{"containers":[{"name":"envoy"}]}}
    mount            | {"metadata":{"annotations":{INJECT,"envoy-drainer.dev/admin-address":"unix:/a/b"}},"spec":{"containers":[{"name":"envoy","volumeMounts":[{%}]}]}}
    Deployment       | {"apiVersion":"apps/v1","kind":"Deployment",%}
    Rollout          | {"apiVersion":"argoproj.io/v1alpha1","kind":"Rollout",%}
    review           | {"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",%}
    request          | {"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":{"group":"","version":"v1","kind":"Pod"},"operation":"CREATE",%}}
"#;

/// Pods with long lists, deep nesting and large maps: name, place, content and fill. The maximum nesting is what fits
/// [`MAX_BODY`].
const LISTS_AND_MAPS: &str = r#"
    containers | spec alone | "containers":[@] | {}
    containers that are numbers | spec alone | "containers":[@] | 0
    containers that are null | spec alone | "containers":[@] | null
    initContainers | spec alone | "initContainers":[@] | {}
    native sidecars | spec alone | "initContainers":[@] | {"restartPolicy":"Always"}
    containers named envoy | spec alone | "containers":[@] | {"name":"envoy","image":"envoy"}
    Envoys by their image | spec alone | "containers":[@] | {"name":"e~","image":"envoy"}
    drainers | spec alone | "containers":[@] | {"name":"envoy-drainer"}
    probes | spec alone | "containers":[@] | {"readinessProbe":{"httpGet":{"port":1}}}
    containers with a port | spec alone | "containers":[@] | {"ports":[{"containerPort":~}]}
    volumes | spec | "volumes":[@] | {}
    volumes with the drainer's name | spec | "volumes":[@] | {"name":"envoy-drainer"}
    unknown lists of objects | spec | "x":[@] | {"":0}
    env | container | "env":[@] | {}
    ports | container | "ports":[@] | {}
    ports of the drainer | container | "ports":[@] | {"containerPort":15902}
    volumeMounts | container | "volumeMounts":[@] | {}
    volumeMounts with a path | container | "volumeMounts":[@] | {"mountPath":"/~"}
    command | container | "command":[@] | ""
    args | container | "args":[@] | ""
    items of a ConfigMap | spec | "volumes":[{"configMap":{"items":[@]}}] | {}
    a hook | container | "lifecycle":{"preStop":{"x":[@]}} | 0
    escaped args | container | "args":[@] | "\n"
    args with a Unicode escape | container | "args":[@] | "\u0061"
    ownerReferences | metadata alone | "ownerReferences":[@] | {}
    Jobs as owners | metadata alone | "ownerReferences":[@] | {"kind":"Job","apiVersion":"batch/v1"}
    pods | whole | [@] | {}
    repeated spec | pod | @ | "spec":{}
    repeated containers | spec | @ | "containers":[]
    repeated annotations | metadata alone | @ | "annotations":{}
    nesting in an unknown field | spec | "x":@ | arrays 200000
    nesting in containers | spec alone | "containers":[@] | arrays 200000
    nesting in labels | metadata alone | "labels":@ | arrays 200000
    maximum nesting of arrays | spec | "x":@ | arrays 3669504
    maximum nesting of objects | spec | "x":@ | objects 1222826
    annotations with a known key | annotations | @ | "envoy-drainer.dev/port":"1"
    annotations with a nearly known key | annotations | @ | "envoy-drainer.dev/drain-timeou~":""
    annotations with an unknown key | annotations | @ | "envoy-drainer.dev/~":""
    escaped annotations | annotations | @ | "\u0065nvoy-drainer.dev/~":"\n"
    annotations with a similar prefix | annotations | @ | "envoydrainer.dev/inject~":""
    other annotations | annotations | @ | "~":""
    escaped values of annotations | annotations | @ | "~":"\n\n\n\n\n\n\n\n"
    empty annotations | annotations | @ | "":""
    inject annotations | annotations | @ | "envoy-drainer.dev/inject":"true"
    status annotations | annotations | @ | "envoy-drainer.dev/status":"{}"
    labels | whole | {"metadata":{"labels":{@},"annotations":{INJECT}}} | "~":""
    labels with our prefix | whole | {"metadata":{"labels":{@},"annotations":{INJECT}}} | "envoy-drainer.dev/~":""
    nodeSelector | spec | "nodeSelector":{@} | "~":""
    nodeSelector of operating systems | spec | "nodeSelector":{@} | "kubernetes.io/os":"linux"
    requests | container | "resources":{"requests":{@}} | "~":1
    limits | container | "resources":{"limits":{@}} | "cpu":1
    unknown members of metadata | metadata alone | @ | "envoy-drainer.dev/~":0
"#;

/// Pods with a long text in each string field that admission reads: name, place and content.
const TEXTS: &str = r#"
    name of the container | spec alone | "containers":[{"name":"@"}]
    name of a second container | spec | "initContainers":[{"restartPolicy":"Always","name":"@"}]
    image | container | "image":"@"
    image of a container | spec alone | "containers":[{"image":"@"}]
    element of args | container | "args":["@"]
    element of command | container | "command":["@"]
    --config-yaml | container | "args":["--config-yaml","admin: @"]
    name of a port | container | "ports":[{"name":"@"}]
    protocol | container | "ports":[{"containerPort":15902,"protocol":"@"}]
    restartPolicy | container | "restartPolicy":"@"
    port of a probe | container | "readinessProbe":{"httpGet":{"port":"@"}}
    limit of CPU | container | "resources":{"limits":{"cpu":"@"}}
    name of a volume | spec | "volumes":[{"name":"@"}]
    name of the socket's volume | mount | "mountPath":"/a","name":"@"
    subPath of the socket's volume | mount | "mountPath":"/a","subPath":"@"
    path of a mount | mount | "mountPath":"@"
    name of the pod's operating system | spec | "os":{"name":"@"}
    value of a nodeSelector | spec | "nodeSelector":{"kubernetes.io/os":"@"}
    key of a nodeSelector | spec | "nodeSelector":{"@":"linux"}
    preStop hook | whole | {"metadata":{"annotations":{INJECT,"envoy-drainer.dev/existing-hook":"replace"}},"spec":{"containers":[{"name":"envoy","lifecycle":{"preStop":{"exec":{"command":["@"]}}}}]}}
    value of inject | whole | {"metadata":{"annotations":{"envoy-drainer.dev/inject":"@"}}}
    value of envoy-container | annotations | "envoy-drainer.dev/envoy-container":"@"
    value of admin-address | annotations | "envoy-drainer.dev/admin-address":"@"
    value of ignore-listeners | annotations | "envoy-drainer.dev/ignore-listeners":"@"
    value of drain-timeout | annotations | "envoy-drainer.dev/drain-timeout":"@"
    value of cpu-limit | annotations | "envoy-drainer.dev/cpu-limit":"@"
    value of status | annotations | "envoy-drainer.dev/status":"@"
    value of an unknown key | annotations | "envoy-drainer.dev/x":"@"
    key with our prefix | annotations | "envoy-drainer.dev/@":"1"
    key with a similar prefix | whole | {"metadata":{"annotations":{"envoydrainer@":"1"}},"spec":{"containers":[{"name":"envoy"}]}}
    key with our prefix and a number as value | metadata | "annotations":{"envoy-drainer.dev/@":1}
    value of another annotation | annotations | "x":"@"
    name of the pod | metadata | "name":"@"
    generateName of the pod | metadata | "generateName":"@"
    namespace of the pod | metadata | "namespace":"@"
    name of the owner | metadata | "ownerReferences":[{"controller":true,"uid":"1","kind":"K","apiVersion":"v1","name":"@"}]
    uid of the owner | metadata | "ownerReferences":[{"controller":true,"uid":"@","kind":"K","apiVersion":"v1","name":"n"}]
    label managed-by | metadata | "labels":{"app.kubernetes.io/managed-by":"@"}
    key of metadata | metadata | "envoy-drainer.dev/@":"1"
    key of the pod | whole | {"@":1}
    unknown text | spec | "x":"@"
"#;

/// The same for numbers of many digits.
const DIGITS: &str = r#"
    grace period in digits | spec | "terminationGracePeriodSeconds":1@
    port in digits | container | "ports":[{"containerPort":1@}]
    CPU in digits | container | "resources":{"limits":{"cpu":1@}}
    fraction of CPU in digits | container | "resources":{"limits":{"cpu":1.@}}
    unknown digits | spec | "x":1@
"#;

/// Fields of a pod that are no strings, each with a text in its place, which a message must not repeat: name, place and
/// content.
const WRONG_TYPES: &str = r#"
    the pod | whole | "@"
    metadata | whole | {"metadata":"@"}
    annotations | whole | {"metadata":{"annotations":"@"}}
    ownerReferences | whole | {"metadata":{"ownerReferences":"@"}}
    controller | whole | {"metadata":{"ownerReferences":[{"controller":"@"}]}}
    spec | whole | {"spec":"@"}
    containers | whole | {"spec":{"containers":"@"}}
    a container | whole | {"spec":{"containers":["@"]}}
    ports | container | "ports":"@"
    containerPort | container | "ports":[{"containerPort":"@"}]
    securityContext | container | "securityContext":"@"
    runAsUser | container | "securityContext":{"runAsUser":"@"}
    lifecycle | container | "lifecycle":"@"
    readinessProbe | container | "readinessProbe":"@"
    periodSeconds | container | "readinessProbe":{"periodSeconds":"@"}
    resources | container | "resources":"@"
    limits | container | "resources":{"limits":"@"}
    hostNetwork | spec | "hostNetwork":"@"
    automountServiceAccountToken | spec | "automountServiceAccountToken":"@"
    terminationGracePeriodSeconds | spec | "terminationGracePeriodSeconds":"@"
"#;

/// Kinds of workloads: API version, kind and object.
const KINDS: &str = r#"
    apps/v1 | StatefulSet | {"apiVersion":"apps/v1","kind":"StatefulSet","spec":{"template":%}}
    apps/v1 | DaemonSet | {"apiVersion":"apps/v1","kind":"DaemonSet","spec":{"template":%}}
    apps/v1 | ReplicaSet | {"apiVersion":"apps/v1","kind":"ReplicaSet","spec":{"template":%}}
    batch/v1 | Job | {"apiVersion":"batch/v1","kind":"Job","spec":{"template":%}}
    batch/v1 | CronJob | {"apiVersion":"batch/v1","kind":"CronJob","spec":{"jobTemplate":{"spec":{"template":%}}}}
    v1 | Pod | %
    argoproj.io/v1alpha1 | Rollout | {"apiVersion":"argoproj.io/v1alpha1","kind":"Rollout","spec":{"template":%}}
"#;

/// Pods that are put into each of [`KINDS`].
const DENSE_PODS: &str = r#"
    containers | spec | "initContainers":[@] | {}
    annotations with a nearly known key | whole | {"metadata":{"annotations":{INJECT,@}}} | "envoy-drainer.dev/drain-timeou~":""
    many small objects | spec | "x":[@] | {"":0}
"#;

/// Objects that are reviewed as Deployments: name, place, content and fill.
const OBJECTS: &str = r#"
    object with many small objects | Deployment | "x":[@] | {"":0}
    object with many numbers | Deployment | "x":[@] | 0
    nesting in an object | Deployment | "x":@ | arrays 200000
    object's unknown annotations | Deployment | "metadata":{"annotations":{@}} | "envoy-drainer.dev/LONG_NAME~":""
    object's known annotations | Deployment | "metadata":{"annotations":{@}} | "envoy-drainer.dev/port":""
    object's labels | Deployment | "metadata":{"labels":{@}} | "envoy-drainer.dev/LONG_NAME~":""
    object's metadata | Deployment | "metadata":{@} | "envoy-drainer.dev/LONG_NAME~":""
    object's owners | Deployment | "metadata":{"ownerReferences":[@]} | {}
    object's repeated metadata | Deployment | @ | "metadata":{}
    template's annotations | Deployment | "spec":{"template":{"metadata":{"annotations":{@}}}} | "envoy-drainer.dev/LONG_NAME~":""
    many annotations maps | Deployment | "x":[@] | {"annotations":{"envoy-drainer.dev/port":""}}
    many possible pod templates | Rollout | "x":[@] | {"spec":{"containers":[]}}
    many templates that request injection | Rollout | "x":[@] | {"metadata":{"annotations":{"envoy-drainer.dev/inject":"true"}}}
    a long kind | whole | {"apiVersion":"v1","kind":"@"} | text DEL
    a long name | Deployment | "metadata":{"name":"@"} | text DEL
    a text for a template | Deployment | "spec":{"template":"@"} | text DEL
    a text for a spec | Deployment | "spec":"@" | text DEL
    a list of objects | whole | {"apiVersion":"v1","kind":"List","items":[@]} | {"apiVersion":"v1","kind":"Pod"}
    an array of objects | whole | [@] | {"apiVersion":"v1","kind":"Pod"}
    30,000 keys under our prefix | Deployment | "metadata":{"annotations":{@}} | "envoy-drainer.dev/LONG_NAME~":""
"#;

/// Reviews that are malformed themselves: name, place, content and fill.
const MALFORMED_REVIEWS: &str = r#"
    not JSON | whole | @ | text x
    a text | whole | "@" | text DEL
    a list | whole | [@] | {}
    nesting in place of a review | whole | @ | arrays 3670016
    a long kind of review | whole | {"apiVersion":"admission.k8s.io/v1","kind":"@"} | text DEL
    a text for a request | review | "request":"@" | text DEL
    a list for a request | review | "request":[@] | {}
    unknown members of a review | review | @ | "~":{}
    a long uid | review | "request":{"uid":"@"} | text \"
    a long name of a request | request | "name":"@","object":{} | text DEL
    a long namespace | request | "namespace":"@","object":{} | text DEL
    a text for dryRun | request | "dryRun":"@","object":{} | text DEL
    a text for a kind | request | "resource":"@","object":{} | text DEL
    many groups of a user | request | "userInfo":{"groups":[@]},"object":{} | ""
    an old object | request | "oldObject":{"spec":{"containers":[@]}},"object":{} | {}
"#;

/// Returns all documents.
pub(crate) fn all_documents() -> Vec<Document> {
    let pods = pods();
    let pod_reviews = pods.iter().map(Document::in_pod_review);
    let template = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"w"},"spec":{"template":%}}"#;
    let workload_reviews = pods
        .iter()
        .map(|pod| pod.in_workload_review("apps/v1", "Deployment", template));
    pod_reviews
        .chain(workload_reviews)
        .chain(workloads())
        .chain(malformed_reviews())
        .collect()
}

/// Returns a document of which admission skips nearly everything, for comparison.
pub(crate) fn skipped_document() -> Document {
    unknown_list().in_pod_review()
}

/// Returns the review with the largest response.
pub(crate) fn largest_response_review() -> Vec<u8> {
    invalid_values().in_pod_review().body()
}

/// Returns the pods, each with one list, map or string that is grown.
fn pods() -> Vec<Document> {
    let mut pods = documents(LISTS_AND_MAPS);
    pods.extend(wide_lists());
    pods.extend(texts());
    pods.extend(repeated_texts());
    pods.extend(rows(WRONG_TYPES).map(|[name, place, content]| {
        let name = format!("a text for {name}");
        Document::new(
            &name,
            in_place(place, content),
            Fill::Text(UNESCAPED_CONTROL),
        )
    }));
    pods.extend(annotations_at_the_limit());
    pods.push(unknown_list());
    pods.push(invalid_values());
    pods
}

/// Returns the documents of a table with name, place, content and fill.
fn documents(table: &'static str) -> Vec<Document> {
    rows(table)
        .map(|[name, place, content, fill]| {
            Document::new(name, in_place(place, content), Fill::parse(fill))
        })
        .collect()
}

/// Puts content into one of the [`PLACES`].
fn in_place(place: &str, content: &str) -> String {
    let [_, template] = rows(PLACES)
        .find(|[name, _]| *name == place)
        .unwrap_or_else(|| panic!("unknown place: {place}"));
    template
        .replace(POD, content)
        .replace("INJECT", INJECT_ANNOTATION)
}

/// Returns a pod with a list that admission does not read.
fn unknown_list() -> Document {
    let template = in_place("spec", r#""x":[@]"#);
    let fill = Fill::Items("0".to_owned());
    Document::new("unknown lists of numbers", template, fill)
}

/// Returns pods of containers with 400 elements in each of their four lists: below the limit of one list, but many such
/// containers are above the limit of all lists together.
fn wide_lists() -> [Document; 2] {
    let list = |item: &str| vec![item; 400].join(",");
    let (objects, texts) = (list("{}"), list(r#""""#));
    let container = format!(
        r#"{{"ports":[{objects}],"volumeMounts":[{objects}],"command":[{texts}],"args":[{texts}]}}"#
    );
    let containers = vec![container; 1_000].join(",");
    ["containers", "initContainers"].map(|list| {
        let template = in_place("spec alone", &format!(r#""{list}":[@]"#));
        let name = format!("{list} with all lists long");
        Document::new(&name, template, Fill::Once(containers.clone()))
    })
}

/// Returns the pods of [`TEXTS`], each with several texts, and of [`DIGITS`].
fn texts() -> Vec<Document> {
    let mut pods = Vec::new();
    for [name, place, content] in rows(TEXTS) {
        let template = in_place(place, content);
        let at_limit = |escaped: &str| Fill::Once(escaped.repeat(MAX_TEXT - overhead(&template)));
        let fills = [
            ("", Fill::Text("x")),
            ("escaped ", Fill::Text(r#"\""#)),
            ("DEL characters in ", Fill::Text(UNESCAPED_CONTROL)),
            (
                "control characters up to the limit in ",
                at_limit(ESCAPED_CONTROL),
            ),
            ("backslashes up to the limit in ", at_limit(BACKSLASH)),
        ];
        pods.extend(fills.map(|(variant, fill)| {
            Document::new(&format!("{variant}{name}"), template.clone(), fill)
        }));
    }
    pods.extend(rows(DIGITS).map(|[name, place, content]| {
        Document::new(name, in_place(place, content), Fill::Text("9"))
    }));
    pods
}

/// Returns the length of the string around the placeholder without the placeholder, in bytes.
fn overhead(template: &str) -> usize {
    let (before, after) = template
        .split_once(PLACEHOLDER)
        .expect("every template has a placeholder");
    let before = before.rsplit('"').next().unwrap_or_default();
    let after = after.split('"').next().unwrap_or_default();
    before.len() + after.len()
}

/// Returns pods with texts that a patch repeats, up to the limit of all texts and up to those of names and paths.
fn repeated_texts() -> [Document; 4] {
    let template = format!(
        r#"{{"metadata":{{"annotations":{{{INJECT_ANNOTATION},"envoy-drainer.dev/existing-hook":"replace","envoy-drainer.dev/admin-address":"unix:/a/b"}}}},"spec":{{"containers":[@]}}}}"#
    );
    let mount = |name: usize, path: usize| {
        let (slashes, sub_path) = ("/".repeat(path - 2), ESCAPED_CONTROL.repeat(path));
        let name = ESCAPED_CONTROL.repeat(name);
        format!(r#"{{"name":"{name}","mountPath":"/a{slashes}","subPath":"{sub_path}"}}"#)
    };
    let container = |name: usize, mount: &str, hook: usize| {
        let (name, hook) = (BACKSLASH.repeat(name), BACKSLASH.repeat(hook));
        format!(
            r#"{{"name":"{name}","image":"envoy","volumeMounts":[{mount}],"lifecycle":{{"preStop":"{hook}"}}}}"#
        )
    };
    let probed_container =
        r#",{"readinessProbe":{"tcpSocket":{"port":65535},"periodSeconds":4294967295}}"#;
    let three_texts = container(1, &mount(MAX_TEXT, MAX_TEXT), 1);
    let long_name = container(32_200, &mount(1, 2), 1);
    let longest = container(63, &mount(63, 4096), 2047);
    let with_probes = format!("{longest}{}", probed_container.repeat(1_999));
    [
        ("three texts at the limit in a mount", three_texts),
        ("a name of 32,200 backslashes", long_name),
        ("names and paths at their limits", longest),
        ("names and paths at their limits, and probes", with_probes),
    ]
    .map(|(name, containers)| Document::new(name, template.clone(), Fill::Once(containers)))
}

/// Returns pods whose annotations have exactly the size that the API server accepts at most.
fn annotations_at_the_limit() -> [Document; 2] {
    let capacity = MAX_ANNOTATIONS - "envoy-drainer.dev/inject".len() - "true".len();
    let one = format!(r#""x":"{}""#, "x".repeat(capacity - 1));
    // Ten bytes each; the last one takes the remaining bytes.
    let count = capacity / 10 - 1;
    let many: String = (0..count).map(|n| format!(r#""k{n:07}":"xx","#)).collect();
    let rest = "y".repeat(capacity - count * 10 - 1);
    let many = format!(r#"{many}"y":"{rest}""#);
    [
        ("one annotation at the limit", one),
        ("many annotations at the limit", many),
    ]
    .map(|(name, all)| Document::new(name, in_place("annotations", "@"), Fill::Once(all)))
}

/// Returns a pod with a long invalid value in every setting whose message repeats it, and with unknown keys.
fn invalid_values() -> Document {
    const NAMES: &str = "admin-address port drain-delay min-drain-duration drain-timeout idle-exit quiet-period \
        health-failure-delay exit-at-connections native-sidecar existing-hook cpu-request memory-request cpu-limit \
        memory-limit";
    let value = UNESCAPED_CONTROL.repeat(1024);
    let invalid = NAMES
        .split_whitespace()
        .map(|name| format!(r#""envoy-drainer.dev/{name}":"{value}""#));
    let unknown = (0..60).map(|n| format!(r#""envoy-drainer.dev/drain-timeou{n}":"""#));
    let all: Vec<_> = invalid.chain(unknown).collect();
    let template = in_place("annotations", "@");
    Document::new("invalid values", template, Fill::Once(all.join(",")))
}

/// Returns the reviews of workloads.
fn workloads() -> Vec<Document> {
    let mut reviews = Vec::new();
    for [api_version, kind, template] in rows(KINDS) {
        for mut pod in documents(DENSE_PODS) {
            pod.name = format!("{} of a {kind}", pod.name);
            reviews.push(pod.in_workload_review(api_version, kind, template));
        }
    }
    for mut object in documents(OBJECTS) {
        if object.name.starts_with("30,000 keys") {
            // Smaller than the maximum body: a size that the API server itself accepts.
            object.capacity = 5 << 19;
        }
        reviews.push(object.in_workload_review("apps/v1", "Deployment", "%"));
    }
    reviews
}

/// Returns the malformed reviews, for both paths.
fn malformed_reviews() -> impl Iterator<Item = Document> {
    let for_both_paths = |document: Document| {
        ["/inject", "/workloads"].map(|path| Document {
            path,
            is_malformed: true,
            ..document.clone()
        })
    };
    documents(MALFORMED_REVIEWS)
        .into_iter()
        .flat_map(for_both_paths)
}

// === impl Document ===

impl Document {
    fn new(name: &str, template: String, fill: Fill) -> Self {
        Self {
            name: name.to_owned(),
            path: "/inject",
            is_malformed: false,
            template,
            fill,
            capacity: MAX_BODY,
        }
    }

    /// Returns the review of the pod.
    fn in_pod_review(&self) -> Self {
        self.in_review("/inject", "v1", "Pod", "%")
    }

    /// Puts the pod into an object, in place of [`POD`], and returns the object's review.
    fn in_workload_review(&self, api_version: &str, kind: &str, object: &str) -> Self {
        self.in_review("/workloads", api_version, kind, object)
    }

    fn in_review(&self, path: &'static str, api_version: &str, kind: &str, object: &str) -> Self {
        let object = object.replace(POD, &self.template);
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let template = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","kind":{{"group":"{group}","version":"{version}","kind":"{kind}"}},"namespace":"shop","operation":"CREATE","object":{object}}}}}"#
        );
        Self {
            path,
            template,
            ..self.clone()
        }
    }

    /// Returns the review's bytes, at most [`MAX_BODY`] of them.
    pub(crate) fn body(&self) -> Vec<u8> {
        let parts = self.template.split_once(PLACEHOLDER);
        let (before, after) = parts.expect("every template has a placeholder");
        let available = self.capacity - before.len() - after.len();
        let mut body = Vec::with_capacity(self.capacity);
        body.extend_from_slice(before.as_bytes());
        self.fill.write(available, &mut body);
        body.extend_from_slice(after.as_bytes());
        assert!(
            body.len() <= MAX_BODY,
            "{}: {} bytes",
            self.name,
            body.len()
        );
        body
    }
}

// === impl Fill ===

impl Fill {
    /// Parses a table's column: a text to repeat (`DEL` is that control character), the depth of nested arrays or
    /// objects, or else an item, in which `LONG_NAME` stands for 60 letters.
    fn parse(column: &'static str) -> Self {
        let depth = |depth: &str| depth.parse().expect("a depth is a number");
        match column.split_once(' ') {
            Some(("text", "DEL")) => Self::Text(UNESCAPED_CONTROL),
            Some(("text", text)) => Self::Text(text),
            Some(("arrays", levels)) => Self::Nested("[", "", "]", depth(levels)),
            Some(("objects", levels)) => Self::Nested(r#"{"":"#, "0", "}", depth(levels)),
            _ => Self::Items(column.replace("LONG_NAME", &"x".repeat(60))),
        }
    }

    /// Appends at most `available` bytes to the body.
    fn write(&self, available: usize, body: &mut Vec<u8>) {
        match self {
            Self::Items(item) if item.contains('~') => {
                let (before, after) = item.split_once('~').expect("the item contains `~`");
                let end = body.len() + available;
                for n in 0.. {
                    let item = format!("{}{before}{n}{after}", if n == 0 { "" } else { "," });
                    if body.len() + item.len() > end {
                        break;
                    }
                    body.extend_from_slice(item.as_bytes());
                }
            }
            Self::Items(item) => {
                let rest = format!(",{item}").repeat((available - item.len()) / (item.len() + 1));
                body.extend_from_slice(item.as_bytes());
                body.extend_from_slice(rest.as_bytes());
            }
            Self::Text(text) => {
                body.extend_from_slice(text.repeat(available / text.len()).as_bytes())
            }
            Self::Nested(open, middle, close, depth) => {
                body.extend_from_slice(open.repeat(*depth).as_bytes());
                body.extend_from_slice(middle.as_bytes());
                body.extend_from_slice(close.repeat(*depth).as_bytes());
            }
            Self::Once(text) => body.extend_from_slice(text.as_bytes()),
        }
    }
}
