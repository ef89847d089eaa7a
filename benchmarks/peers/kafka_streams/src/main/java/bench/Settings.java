package bench;

import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsConfig;

/** What the harness asks for, from the environment, as Kafka Streams wants it. */
final class Settings {
    static final String INPUT = System.getenv("BENCH_INPUT");
    static final String OUTPUT = System.getenv("BENCH_OUTPUT");
    static final String WORKLOAD = System.getenv("BENCH_WORKLOAD");
    static final String CAMPAIGNS = System.getenv("BENCH_CAMPAIGNS");

    private Settings() {}

    static Properties properties() {
        var properties = new Properties();
        var exactlyOnce = "exactly_once".equals(System.getenv("BENCH_GUARANTEE"));
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, System.getenv("BENCH_ID"));
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, System.getenv("BENCH_BROKER"));
        properties.put(StreamsConfig.STATE_DIR_CONFIG, System.getenv("BENCH_DATA"));
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG,
                exactlyOnce ? StreamsConfig.EXACTLY_ONCE_V2 : StreamsConfig.AT_LEAST_ONCE);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, System.getenv("BENCH_COMMIT_MS"));
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        properties.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        // Room for every key of the workload: a key that changes often is written once per commit.
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 128 << 20);
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        if ("latency".equals(System.getenv("BENCH_AIM"))) {
            // Streams' producer waits 100 ms for more records: good for throughput, bad for this.
            properties.put(StreamsConfig.producerPrefix("linger.ms"), 0);
        }
        return properties;
    }
}
