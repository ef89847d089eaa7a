package bench;

import java.nio.file.Path;
import java.util.Properties;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExternalizedCheckpointRetention;
import org.apache.flink.configuration.PipelineOptions;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.configuration.StateBackendOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;

/** What the harness asks for, from the environment, as Flink wants it. */
final class Settings {
    static final String WORKLOAD = System.getenv("BENCH_WORKLOAD");
    static final String CAMPAIGNS = System.getenv("BENCH_CAMPAIGNS");
    static final boolean EXACTLY_ONCE = "exactly_once".equals(System.getenv("BENCH_GUARANTEE"));
    private static final String ID = System.getenv("BENCH_ID");
    private static final String BROKER = System.getenv("BENCH_BROKER");
    private static final Path DATA = Path.of(System.getenv("BENCH_DATA"));

    private Settings() {}

    static long commitInterval() {
        return Long.parseLong(System.getenv("BENCH_COMMIT_MS"));
    }

    static Configuration configuration() {
        var configuration = new Configuration();
        configuration.set(PipelineOptions.OBJECT_REUSE, true);
        configuration.set(RestartStrategyOptions.RESTART_STRATEGY, "none"); // what goes wrong is to be seen
        configuration.set(StateBackendOptions.STATE_BACKEND, System.getenv("BENCH_STORE"));
        configuration.set(CheckpointingOptions.INCREMENTAL_CHECKPOINTS, true);
        configuration.set(CheckpointingOptions.CHECKPOINT_STORAGE, "filesystem");
        configuration.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, DATA.resolve("checkpoints").toUri().toString());
        configuration.set(CheckpointingOptions.EXTERNALIZED_CHECKPOINT_RETENTION,
                ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION);
        return configuration;
    }

    static <T> KafkaSource<T> source(KafkaRecordDeserializationSchema<T> schema) {
        return KafkaSource.<T>builder()
                .setBootstrapServers(BROKER)
                .setTopics(System.getenv("BENCH_INPUT"))
                .setGroupId(ID)
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setDeserializer(schema)
                .build();
    }

    static <T> KafkaSink<T> sink(KafkaRecordSerializationSchema<T> schema) {
        var properties = new Properties();
        properties.put("transaction.timeout.ms", "600000");
        return KafkaSink.<T>builder()
                .setBootstrapServers(BROKER)
                .setDeliveryGuarantee(EXACTLY_ONCE ? DeliveryGuarantee.EXACTLY_ONCE : DeliveryGuarantee.AT_LEAST_ONCE)
                .setTransactionalIdPrefix(ID)
                .setKafkaProducerConfig(properties)
                .setRecordSerializer(schema)
                .build();
    }

    static String output() {
        return System.getenv("BENCH_OUTPUT");
    }
}
